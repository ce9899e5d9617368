/* numbered_values.c - the numbers of numbered.h, and what becomes of them on the way. */
#include <stdlib.h>
#include <string.h>

#include "numbered.h"

uint64_t numbered_number(uint32_t param, uint64_t element, enum wf_dtype dtype)
{
    uint64_t x = (element + 1) * 0x9e3779b97f4a7c15u + (param + 1) * 0xd1b54a32d192ed03u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 32;
    uint64_t bits = x & 0xbfff;
    switch (dtype) {
    case WF_DTYPE_F32:
        return bits << 16;
    case WF_DTYPE_BF16:
    case WF_DTYPE_F16:
        return bits;
    default:
        return x;
    }
}

/* In what type train ranks hold a parameter. */
static enum wf_dtype held_dtype(const struct numbered *world, uint32_t param)
{
    for (uint32_t m = 0; m < NUMBERED_MEMBERS_MAX && world->own[m] != NULL; m++) {
        const struct wf_layout *own = world->own[m];
        for (uint32_t i = 0; i < own->piece_count; i++) {
            if (own->pieces[i].kind == WF_PIECE_DATA && own->pieces[i].param == param) {
                return own->tensors[own->pieces[i].tensor].dtype;
            }
        }
    }
    return WF_DTYPE_NONE;
}

static float to_float(uint64_t number, enum wf_dtype dtype)
{
    uint16_t half = (uint16_t)number;
    uint32_t bits = dtype == WF_DTYPE_BF16 ? (uint32_t)half << 16 : (uint32_t)number;
    _Float16 f16;
    float value;
    memcpy(&f16, &half, sizeof f16);
    memcpy(&value, &bits, sizeof value);
    return dtype == WF_DTYPE_F16 ? (float)f16 : value;
}

static uint64_t from_float(float value, enum wf_dtype dtype)
{
    uint32_t bits;
    uint16_t half;
    _Float16 f16 = (_Float16)value;
    memcpy(&bits, &value, sizeof bits);
    memcpy(&half, &f16, sizeof half);
    return dtype == WF_DTYPE_F32   ? bits
           : dtype == WF_DTYPE_F16 ? half
                                   : (bits + 0x7fff + (bits >> 16 & 1)) >> 16; /* none is a NaN */
}

/* Of the matrix whose codes or scales the parameter has. */
static uint64_t quantised_of(const struct numbered *world, uint32_t param, uint64_t element)
{
    const struct wf_variant_pair *pair = wf_model_pair(world->model, param);
    const struct wf_param *matrix = &world->model->params[pair->matrix];
    struct whole *whole = &world->wholes[pair->matrix];
    if (whole->codes == NULL) {
        enum wf_dtype held = held_dtype(world, pair->matrix);
        float *values = malloc(matrix->elements * sizeof *values);
        for (uint64_t e = 0; e < matrix->elements; e++) {
            values[e] = to_float(numbered_number(pair->matrix, e, held), held);
        }
        whole_quantise(world->model->variants->rule, values, matrix->shape[0], matrix->shape[1],
                       whole);
        free(values);
    }
    uint32_t scale;
    memcpy(&scale, &whole->scales[param == pair->scales ? element : 0], sizeof scale);
    return param == pair->scales ? scale : whole->codes[element];
}

uint64_t numbered_wanted(const struct numbered *world, uint32_t param, uint64_t element,
                         enum wf_dtype dtype)
{
    enum wf_dtype held = world->less_one[param];
    if (world->model->variants != NULL && param >= world->model->variants->plain_count) {
        return quantised_of(world, param, element);
    }
    if (held == WF_DTYPE_NONE) {
        return numbered_number(param, element, dtype);
    }
    return from_float(to_float(numbered_number(param, element, held), held) + 1, dtype);
}
