/* page.h - the page that watches a job (page.html), as bytes; the build writes page_html.c. */
#ifndef WEFT_TOOLS_WATCH_PAGE_H
#define WEFT_TOOLS_WATCH_PAGE_H

#include <stddef.h>

extern const char wf_page_html[];
extern const size_t wf_page_html_len;

#endif
