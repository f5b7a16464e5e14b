/* recurrent.c -- nn.LSTM, nn.GRU and nn.RNN: layers and directions of the operations of one.   SPDX-License-Identifier: MIT */
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>

enum { WEIGHT_IH, WEIGHT_HH, BIAS_IH, BIAS_HH };

static int layers_of(const tutti_recurrent_layer_opts *o)
{
    return o->layers ? o->layers : 1;
}

static int directions_of(const tutti_recurrent_layer_opts *o)
{
    return o->bidirectional ? 2 : 1;
}

/* The parameters of a layer and direction. */
static void make(tutti_recurrent *m, int layer, int direction)
{
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    const tutti_recurrent_layer_opts *o = &m->opts;
    const int64_t rows = m->gates * o->hidden;
    const int64_t in = layer ? directions_of(o) * o->hidden : o->in;
    const float bound = (float)(1 / sqrt((double)o->hidden));

    for (int i = 0; i < (o->no_bias ? BIAS_IH : BIAS_HH + 1); i++) {
        const tutti_shape shape = i == WEIGHT_IH   ? TUTTI_SHAPE(rows, in)
                                  : i == WEIGHT_HH ? TUTTI_SHAPE(rows, o->hidden)
                                                   : TUTTI_SHAPE(rows);
        char name[32];

        snprintf(name, sizeof name, "%s_l%d%s", names[i], layer, direction ? "_reverse" : "");
        m->weights[2 * layer + direction][i] =
            tutti_parameter_new(&m->base, name, shape, TUTTI_INIT_UNIFORM, bound);
    }
}

/* One layer in one direction; *h and *c: its last states. */
static tutti_tensor *run(const tutti_recurrent *m, tutti_tensor *x, int layer, int direction,
                         tutti_tensor **h, tutti_tensor **c)
{
    tutti_tensor *const *w = m->weights[2 * layer + direction];
    const tutti_recurrent_args args = {.weight_ih = w[WEIGHT_IH],
                                       .weight_hh = w[WEIGHT_HH],
                                       .bias_ih = w[BIAS_IH],
                                       .bias_hh = w[BIAS_HH],
                                       .batch_first = m->opts.batch_first,
                                       .reverse = direction == 1,
                                       .relu = m->opts.relu};

    return m->gates == 4   ? tutti_functional_lstm(x, &args, h, c)
           : m->gates == 3 ? tutti_functional_gru(x, &args, h)
                           : tutti_functional_rnn(x, &args, h);
}

/* All layers; *h_n and *c_n, if not NULL: the last states of all of them. */
static tutti_tensor *run_layers(const tutti_recurrent *m, tutti_tensor *x, tutti_tensor **h_n,
                                tutti_tensor **c_n)
{
    tutti_tensor *h[2 * TUTTI_MAX_RECURRENT_LAYERS] = {NULL};
    tutti_tensor *c[2 * TUTTI_MAX_RECURRENT_LAYERS] = {NULL};
    int n = 0;

    for (int layer = 0; layer < layers_of(&m->opts); layer++) {
        tutti_tensor *both[2];

        if (layer > 0 && m->opts.dropout > 0)
            x = tutti_dropout(x, m->opts.dropout);
        for (int d = 0; d < directions_of(&m->opts); d++, n++)
            both[d] = run(m, x, layer, d, h_n ? &h[n] : NULL, c_n ? &c[n] : NULL);
        x = m->opts.bidirectional ? tutti_cat(both, 2, 2) : both[0];
    }
    if (h_n)
        *h_n = tutti_stack(h, n, 0);
    if (c_n)
        *c_n = m->gates == 4 ? tutti_stack(c, n, 0) : NULL;
    return x;
}

static tutti_tensor *forward(tutti_module *m, tutti_tensor *x)
{
    return run_layers((tutti_recurrent *)m, x, NULL, NULL);
}

static void init(tutti_recurrent *m, tutti_module *parent, const char *name, int gates,
                 const tutti_recurrent_layer_opts *given)
{
    static const tutti_recurrent_layer_opts none; /* without features: refused */
    const tutti_recurrent_layer_opts *o = given ? given : &none;

    *m = (tutti_recurrent){.gates = gates, .opts = *o};
    tutti_module_init_child(&m->base, parent, name);
    m->base.forward = forward;
    if (TUTTI__CHECK_RESERVED(tutti_recurrent_layer_opts, o) != TUTTI_OK)
        tutti__module_fail(&m->base, TUTTI_ERR_ARG, "%s: %s", tutti__module_path(&m->base),
                           tutti_last_error());
    else if (o->in < 1 || o->hidden < 1 || layers_of(o) < 1 ||
             layers_of(o) > TUTTI_MAX_RECURRENT_LAYERS || !(o->dropout >= 0 && o->dropout <= 1))
        tutti__module_fail(&m->base, TUTTI_ERR_ARG,
                           "%s: from %lld to %lld features in %d layers, dropout %g; expected at "
                           "least 1 feature, 1 to %d layers, and a probability from 0 to 1",
                           tutti__module_path(&m->base), (long long)o->in, (long long)o->hidden,
                           layers_of(o), (double)o->dropout, TUTTI_MAX_RECURRENT_LAYERS);
    else
        for (int i = 0; i < layers_of(o) * directions_of(o); i++)
            make(m, i / directions_of(o), i % directions_of(o));
}

void tutti_lstm_init(tutti_recurrent *m, tutti_module *parent, const char *name,
                     const tutti_recurrent_layer_opts *opts)
{
    init(m, parent, name, 4, opts);
}

void tutti_gru_init(tutti_recurrent *m, tutti_module *parent, const char *name,
                    const tutti_recurrent_layer_opts *opts)
{
    init(m, parent, name, 3, opts);
}

void tutti_rnn_init(tutti_recurrent *m, tutti_module *parent, const char *name,
                    const tutti_recurrent_layer_opts *opts)
{
    init(m, parent, name, 1, opts);
}

tutti_tensor *tutti_recurrent_forward(tutti_recurrent *m, tutti_tensor *x, tutti_tensor **h_n,
                                      tutti_tensor **c_n)
{
    tutti_tensor *bad;

    if (tutti__module_refuses(m ? &m->base : NULL, x, &bad)) {
        *(h_n ? h_n : &bad) = *(c_n ? c_n : &bad) = bad;
        return bad;
    }
    return tutti__module_done(&m->base, x, run_layers(m, x, h_n, c_n), NULL);
}
