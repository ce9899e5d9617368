/* expect_class.h - in which way an engine's model class is not like its others, retold.
 *
 * What most classes do is in expect_layer.c. A class that nobody lists here is taken for one of
 * those, on one stage; what it does otherwise then shows as a tensor that the check does not know.
 *
 * Pure; any thread.
 */
#ifndef WEFT_TOOLS_CHECK_EXPECT_CLASS_H
#define WEFT_TOOLS_CHECK_EXPECT_CLASS_H

#include <stdbool.h>
#include <stdint.h>

/* Which stages have a head of their own. */
enum wf_expect_heads {
    WF_EXPECT_HEAD_LAST,       /* the last; tied, it is that stage's own embedding */
    WF_EXPECT_HEAD_OWN,        /* the last; tied and behind the first, a copy of the embedding */
    WF_EXPECT_HEAD_EVERYWHERE, /* all; tied, it is the embedding, and further stages have none */
    WF_EXPECT_HEAD_NEVER_TIED, /* all; tied, each a copy of the embedding */
};

struct wf_expect_class {
    const char *types;       /* model_type of the config, each between two | */
    bool sglang;             /* else vLLM */
    const char *text;        /* what the checkpoint's names of the text model begin with */
    const char *live;        /* and the engine's */
    const char *head;        /* the checkpoint's name */
    const char *live_top;    /* goes before the head's name; NULL: nothing */
    const char *live_visual; /* of what the checkpoint calls model.visual.; NULL: there is none */
    const char *stored;      /* of the embedding, behind `text`; NULL: embed_tokens.weight */
    const char *embedding;   /* and behind `live`; NULL: the same */
    const char *attention;   /* of the layer; NULL: self_attn. */
    bool alternates;         /* of experts: a row of gate, a row of up, and so on; biases */
    bool one_qkv;            /* the checkpoint has q, k and v in one, as have the engine's names */
    uint32_t fuses;          /* with so many experts it has the shared one in a slot; 1: with any */
    bool fuses_alike;     /* one of the routed experts' size stands in a slot, dealt out or not */
    bool plain_embedding; /* whole on every rank, without padding */
    bool stages;          /* what each of several has is known */
    enum wf_expect_heads heads;
};

/* Never NULL. */
const struct wf_expect_class *wf_expect_class(const char *model_type, bool sglang);

#endif
