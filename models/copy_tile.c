/* copy_tile.c - transposes: whole cache lines on both sides, and the turning between them in L1.
 */
#include <string.h>

#include "models/copy_rect.h"

enum { TILE = 64 /* elements of a side; two tiles of 8-byte elements are 64 KiB of stack */ };

/* Eight rows of eight 16-bit numbers: three rounds of interleaving, each doubling the distance. */
typedef uint16_t wide16 __attribute__((vector_size(16)));
typedef uint32_t wide32 __attribute__((vector_size(16)));

static void turn_8x8_of_2(char *dst, size_t dst_pitch, const char *src, size_t src_pitch)
{
    wide16 rows[8], mixed[8];
    for (int i = 0; i < 8; i++) {
        memcpy(&rows[i], src + (size_t)i * src_pitch, sizeof rows[i]);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) {
            mixed[2 * i] = __builtin_shufflevector(rows[i], rows[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
            mixed[2 * i + 1] =
                __builtin_shufflevector(rows[i], rows[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
        }
        memcpy(rows, mixed, sizeof rows);
    }
    for (int i = 0; i < 8; i++) {
        memcpy(dst + (size_t)i * dst_pitch, &rows[i], sizeof rows[i]);
    }
}

static void turn_4x4_of_4(char *dst, size_t dst_pitch, const char *src, size_t src_pitch)
{
    wide32 rows[4], mixed[4];
    for (int i = 0; i < 4; i++) {
        memcpy(&rows[i], src + (size_t)i * src_pitch, sizeof rows[i]);
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) {
            mixed[2 * i] = __builtin_shufflevector(rows[i], rows[i + 2], 0, 4, 1, 5);
            mixed[2 * i + 1] = __builtin_shufflevector(rows[i], rows[i + 2], 2, 6, 3, 7);
        }
        memcpy(rows, mixed, sizeof rows);
    }
    for (int i = 0; i < 4; i++) {
        memcpy(dst + (size_t)i * dst_pitch, &rows[i], sizeof rows[i]);
    }
}

/* Whole tiles are turned in blocks; what is past `rows` or `columns` in them is never stored. */
static void turn_tile(char *dst, const char *src, size_t rows, size_t columns, size_t elem_bytes)
{
    size_t pitch = TILE * elem_bytes;
    if (elem_bytes == 2) {
        for (size_t i = 0; i < rows; i += 8) {
            for (size_t j = 0; j < columns; j += 8) {
                turn_8x8_of_2(dst + j * pitch + i * 2, pitch, src + i * pitch + j * 2, pitch);
            }
        }
        return;
    }
    if (elem_bytes == 4) {
        for (size_t i = 0; i < rows; i += 4) {
            for (size_t j = 0; j < columns; j += 4) {
                turn_4x4_of_4(dst + j * pitch + i * 4, pitch, src + i * pitch + j * 4, pitch);
            }
        }
        return;
    }
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            if (elem_bytes == 1) {
                dst[j * pitch + i] = src[i * pitch + j];
            } else {
                memcpy(dst + j * pitch + i * 8, src + i * pitch + j * 8, 8);
            }
        }
    }
}

struct tile {
    const char *from;
    char *to;
    size_t height, width; /* rows of the source, columns of it */
};

/* Lines of a tile stand in few sets of L1 when the matrix is a power of two wide: into L2. */
static void prefetch_tile(const struct wf_copier *copier, const struct tile *tile, int64_t src_step)
{
    for (size_t row = 0; row < tile->height; row++) {
        const char *from = tile->from + (int64_t)row * src_step;
        for (size_t byte = 0; byte < tile->width * copier->src_bytes; byte += 64) {
            __builtin_prefetch(from + byte, 0, 2);
        }
    }
}

static void copy_tile(const struct wf_copier *copier, const struct tile *tile, int64_t src_step,
                      int64_t dst_step)
{
    _Alignas(64) char read[TILE * TILE * 8], turned[TILE * TILE * 8];
    size_t pitch = TILE * copier->dst_bytes;
    for (size_t row = 0; row < tile->height; row++) {
        copier->cast(read + row * pitch, tile->from + (int64_t)row * src_step, tile->width);
    }
    turn_tile(turned, read, tile->height, tile->width, copier->dst_bytes);
    for (size_t column = 0; column < tile->width; column++) {
        copier->store(tile->to + (int64_t)column * dst_step, turned + column * pitch, tile->height);
    }
}

static struct tile tile_at(const struct wf_copier *copier, char *dst, const char *src,
                           const struct wf_rect_axis *rows, const struct wf_rect_axis *columns,
                           uint64_t i, uint64_t j)
{
    return (struct tile){
        .from = src + (int64_t)i * rows->src_step + j * copier->src_bytes,
        .to = dst + (int64_t)j * columns->dst_step + i * copier->dst_bytes,
        .height = rows->count - i < TILE ? rows->count - i : TILE,
        .width = columns->count - j < TILE ? columns->count - j : TILE,
    };
}

/* A matrix of dst_axis (rows) by src_axis (columns) at one place of the other axes. */
static void copy_matrix(const struct wf_copier *copier, char *dst, const char *src,
                        const struct wf_rect_axis *rows, const struct wf_rect_axis *columns)
{
    uint64_t i = 0, j = 0;
    struct tile tile = tile_at(copier, dst, src, rows, columns, i, j);
    while (true) {
        i += TILE;
        if (i >= rows->count) {
            i = 0;
            j += TILE;
        }
        bool more = j < columns->count;
        struct tile next = tile;
        if (more) {
            next = tile_at(copier, dst, src, rows, columns, i, j);
            prefetch_tile(copier, &next, rows->src_step);
        }
        copy_tile(copier, &tile, rows->src_step, columns->dst_step);
        if (!more) {
            return;
        }
        tile = next;
    }
}

void wf_copy_tiles(const struct wf_copier *copier, const struct wf_rect *rect, uint32_t src_axis,
                   uint32_t dst_axis)
{
    struct wf_rect_walk walk;
    wf_rect_walk_begin(&walk, rect, 1u << src_axis | 1u << dst_axis);
    do {
        copy_matrix(copier, copier->dst + walk.dst_offset, copier->src + walk.src_offset,
                    &rect->axes[dst_axis], &rect->axes[src_axis]);
    } while (wf_rect_walk_next(&walk, rect));
}
