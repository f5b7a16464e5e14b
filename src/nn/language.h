/* language.h -- parts that language models share.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_NN_LANGUAGE_H
#define TUTTI_NN_LANGUAGE_H

#include "nn/nn.h"

/* A linear layer whose weight is stored [in, out], as in Hugging Face's GPT-2 (its Conv1D). */
typedef struct tutti__projection {
    tutti_module base;
    tutti_tensor *weight, *bias; /* [in, out], [out]; N(0, std), zeros */
} tutti__projection;
void tutti__projection_init(tutti__projection *m, tutti_module *parent, const char *name,
                            int64_t in, int64_t out, float std);
/* x [.., in] -> [.., out] */
tutti_tensor *tutti__projection_forward(tutti__projection *m, tutti_tensor *x);

/* A table of N(0, std). */
void tutti__embedding_init_normal(tutti_embedding *m, tutti_module *parent, const char *name,
                                  int64_t n, int64_t width, float std);

/* x [N,T,D], weight [V,D] -> the logits of each token's successor, [N,T,V]. */
tutti_tensor *tutti__vocabulary_logits(tutti_tensor *x, tutti_tensor *weight);

/* Sizes of a language model, complete. */
typedef struct tutti__language_sizes {
    int layers, heads, kv_heads;
    int64_t width, context, vocab;
} tutti__language_sizes;
/* Those of opts, or else of `defaults`. The module's error, and false, if they do not fit together or samples are longer than the
 * context. */
bool tutti__language_sizes_of(tutti_module *m, const char *model, const tutti_model_opts *opts,
                              const tutti__language_sizes *defaults,
                              tutti__language_sizes *sizes_p);
/* Whether x can be a language model's input: I64 [N,T] with at most `context` tokens. Else *y_p is poisoned. */
bool tutti__language_input_fits(tutti_module *m, tutti_tensor *x, int64_t context,
                                tutti_tensor **y_p);

#endif
