/* run_tokenizer.c -- the tokenizer with which a run's model was trained.   SPDX-License-Identifier: MIT */
#include "train/infer/run_tokenizer.h"

#include "checkpoint/weights.h"
#include "data/text/tokenizer.h"

#include <string.h>

tutti_status tutti__tokenizer_for_run(tutti_tokenizer **tokenizer_p, const char *path,
                                      const char *fit, const char *given, const char *was)
{
    tutti__weights_place place;
    char beside[4096], above[4200];
    const char *places[] = {place.folder, above, place.run, place.hf, beside, was};
    char *slash;
    size_t i = 0;

    *tokenizer_p = NULL;
    TUTTI_TRY(tutti__weights_find(&place, path));
    strcpy(beside, place.file);
    slash = strrchr(beside, '/');
    strcpy(slash ? slash : beside, slash ? "" : ".");
    snprintf(above, sizeof above, "%s/../..", place.folder); /* RUN/checkpoints/STEP */
    for (; i < TUTTI__COUNT_OF(places); i++)
        if (!places[i] || !*places[i] || (i == 1 && !place.folder[0]))
            places[i] = NULL;
    if (!fit && !(given && *given)) /* of weights that were not trained here */
        TUTTI_TRY(tutti__tokenizer_beside(tokenizer_p, place.hf[0] ? place.hf : beside));
    if (*tokenizer_p)
        return TUTTI_OK;
    return tutti__tokenizer_of_fit(tokenizer_p, fit, given, places, TUTTI__COUNT_OF(places));
}
