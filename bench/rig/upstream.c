/* The simulated provider of the benchmark: one thread, epoll, loopback only. Never needs a library.
 *
 *     upstream PORT        (prints "LISTENING <port>"; port 0 picks a free one; ends on SIGTERM)
 *
 * What it answers is chosen by the model name in the request, because that travels through any proxy:
 *
 *     bench-n<events>-i<us between>-s<filler bytes>-c<events per write>-f<us before the first>-j1-a1
 *
 * i0 writes as fast as the socket takes. j1 starts each stream at a random phase of its interval. a1 speaks the
 * Messages format instead of Chat Completions. "stream":true in the body asks for server-sent events, otherwise
 * one JSON answer comes. A request that carries "X-Body-Sum: <hex>" is answered 400 unless its body has that
 * checksum. Every answer ends with the checksum of its own body, see common.h.
 */
#define _GNU_SOURCE
#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_FILLER 4000
#define MAX_WRITE (1 << 20)
#define READ_SIZE 65536
#define KEEP_BUFFER 262144

/* One wire format: how a stream opens, what surrounds an event's text, how it closes around the checksum. */
struct format {
    const char *opening, *event_head, *event_tail, *closing_head, *closing_tail;
};

static const struct format CHAT = {
    "data: {\"id\":\"chatcmpl-bench0001\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
    "\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
    "\"finish_reason\":null}]}\n\n",
    "data: {\"id\":\"chatcmpl-bench0001\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
    "\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"",
    "\"},\"finish_reason\":null}]}\n\n",
    "data: {\"id\":\"chatcmpl-bench0001\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
    "\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
    "data: {\"id\":\"chatcmpl-bench0001\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
    "\"model\":\"bench\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":100,"
    "\"total_tokens\":110},\"system_fingerprint\":\"",
    "\"}\n\ndata: [DONE]\n\n",
};

static const struct format MESSAGES = {
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_bench0001\","
    "\"type\":\"message\",\"role\":\"assistant\",\"model\":\"bench\",\"content\":[],\"stop_reason\":null,"
    "\"stop_sequence\":null,\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n"
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,"
    "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,"
    "\"delta\":{\"type\":\"text_delta\",\"text\":\"",
    "\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\","
    "\"stop_sequence\":\"",
    "\"},\"usage\":{\"output_tokens\":100}}\n\n"
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
};

static const struct format CHAT_JSON = {
    "",
    "{\"id\":\"chatcmpl-bench0001\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"bench\","
    "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"",
    "\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":12,"
    "\"total_tokens\":22},\"system_fingerprint\":\"",
    "",
    "\"}",
};

struct buffer {
    char *bytes;
    size_t length, capacity;
};

struct conn {
    int fd;
    struct buffer in, out;
    size_t out_sent;
    int busy, stopping, dead, wants_write, is_ready;
    /* The answer being given. */
    const struct format *format;
    long events, written, interval_ns, filler, per_write, first_ns, jitter;
    struct sum sum;
    uint64_t due;
    int heap_index;
    struct conn *next_dead;
};

static int poll_fd;
static char filler[MAX_FILLER];
static struct conn *dead_list;
static volatile sig_atomic_t stop;

/* Timers: a binary heap by due time. */

static struct conn **heap;
static int heap_length, heap_capacity;

static void heap_place(int i, struct conn *c)
{
    heap[i] = c;
    c->heap_index = i;
}

static void heap_up(int i)
{
    struct conn *c = heap[i];
    while (i > 0 && heap[(i - 1) / 2]->due > c->due) {
        heap_place(i, heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    heap_place(i, c);
}

static void heap_down(int i)
{
    struct conn *c = heap[i];
    for (;;) {
        int child = 2 * i + 1;
        if (child >= heap_length)
            break;
        if (child + 1 < heap_length && heap[child + 1]->due < heap[child]->due)
            child++;
        if (heap[child]->due >= c->due)
            break;
        heap_place(i, heap[child]);
        i = child;
    }
    heap_place(i, c);
}

static void heap_add(struct conn *c)
{
    if (heap_length == heap_capacity) {
        heap_capacity = heap_capacity ? heap_capacity * 2 : 1024;
        heap = realloc(heap, (size_t)heap_capacity * sizeof *heap);
    }
    heap_place(heap_length, c);
    heap_up(heap_length++);
}

static void heap_remove(struct conn *c)
{
    int i = c->heap_index;
    if (i < 0)
        return;
    c->heap_index = -1;
    if (i == --heap_length)
        return;
    heap_place(i, heap[heap_length]);
    heap_up(i);
    heap_down(heap[i]->heap_index);
}

/* Streams that write without a pause take turns. */

static struct conn **ready;
static int ready_length, ready_capacity;

static void ready_add(struct conn *c)
{
    if (c->is_ready)
        return;
    if (ready_length == ready_capacity) {
        ready_capacity = ready_capacity ? ready_capacity * 2 : 1024;
        ready = realloc(ready, (size_t)ready_capacity * sizeof *ready);
    }
    ready[ready_length++] = c;
    c->is_ready = 1;
}

/* Connections. */

static void conn_close(struct conn *c)
{
    if (c->dead)
        return;
    c->dead = 1;
    heap_remove(c);
    close(c->fd);
    c->next_dead = dead_list;
    dead_list = c;
}

static void free_dead(void)
{
    while (dead_list) {
        struct conn *c = dead_list;
        dead_list = c->next_dead;
        for (int i = 0; c->is_ready && i < ready_length; i++)
            if (ready[i] == c) {
                ready[i] = ready[--ready_length];
                break;
            }
        free(c->in.bytes);
        free(c->out.bytes);
        free(c);
    }
}

static void conn_want_write(struct conn *c, int wants)
{
    if (c->wants_write == wants)
        return;
    c->wants_write = wants;
    struct epoll_event e = {.events = EPOLLIN | (wants ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &e);
}

/* 1: all written; 0: the rest waits for the socket; -1: the peer is gone. */
static int conn_send(struct conn *c, const char *bytes, size_t n)
{
    size_t sent = 0;
    if (!c->out.length) {
        ssize_t r = send(c->fd, bytes, n, MSG_NOSIGNAL);
        if (r < 0 && errno != EAGAIN)
            return -1;
        sent = r > 0 ? (size_t)r : 0;
        if (sent == n)
            return 1;
    }
    if (c->out.length + n - sent > c->out.capacity) {
        c->out.capacity = (c->out.length + n - sent) * 2;
        c->out.bytes = realloc(c->out.bytes, c->out.capacity);
    }
    memcpy(c->out.bytes + c->out.length, bytes + sent, n - sent);
    c->out.length += n - sent;
    conn_want_write(c, 1);
    return 0;
}

/* Answers. */

static size_t put_text(char *to, const char *text)
{
    size_t n = strlen(text);
    memcpy(to, text, n);
    return n;
}

static size_t put_event(char *to, const struct format *f, uint64_t t, long filler_bytes)
{
    size_t n = put_text(to, f->event_head);
    n += (size_t)sprintf(to + n, "%c%016llu%c", TIME_MARK, (unsigned long long)t, TIME_MARK);
    memcpy(to + n, filler, (size_t)filler_bytes);
    n += (size_t)filler_bytes;
    return n + put_text(to + n, f->event_tail);
}

/* The checksum covers `sum` and the n bytes from `covered` on, which end where the mark goes. */
static size_t put_closing(char *to, const struct format *f, struct sum *sum, const char *covered, size_t n)
{
    sum_add(sum, covered, n);
    size_t k = (size_t)sprintf(to, "%c%016llx", SUM_MARK, (unsigned long long)sum_value(sum));
    return k + put_text(to + k, f->closing_tail);
}

static size_t put_chunk_head(char *to, size_t n)
{
    return (size_t)sprintf(to, "%zx\r\n", n);
}

/* Write what is due of a stream. 1: go on; 0: blocked; 2: it was the last; -1: the peer is gone. */
static int stream_step(struct conn *c)
{
    static char body[MAX_WRITE + 16384], wire[MAX_WRITE + 32768];
    const struct format *f = c->format;
    size_t n = 0;
    uint64_t t = now_ns();
    if (c->written == 0)
        n += put_text(body, f->opening);
    for (long i = 0; i < c->per_write && c->written < c->events && n < MAX_WRITE - 8192; i++, c->written++)
        n += put_event(body + n, f, t, c->filler);
    int last = c->written >= c->events;
    if (last) {
        n += put_text(body + n, f->closing_head);
        n += put_closing(body + n, f, &c->sum, body, n);
    } else {
        sum_add(&c->sum, body, n);
    }
    size_t k = put_chunk_head(wire, n);
    memcpy(wire + k, body, n);
    k += n;
    k += put_text(wire + k, last ? "\r\n0\r\n\r\n" : "\r\n");
    int r = conn_send(c, wire, k);
    return r < 0 ? -1 : last ? 2 : r;
}

static void take_request(struct conn *c);

static void answer_finished(struct conn *c)
{
    c->busy = 0;
    if (c->out.length)
        return;
    if (c->stopping)
        conn_close(c);
    else
        take_request(c);
}

static void schedule(struct conn *c, uint64_t delay)
{
    if (!delay) {
        ready_add(c);
        return;
    }
    /* Keep to the beat, so that a late turn does not stretch the stream. */
    c->due = (c->due ? c->due : now_ns()) + delay;
    heap_add(c);
}

static void advance(struct conn *c)
{
    int r = stream_step(c);
    if (r < 0)
        conn_close(c);
    else if (r == 2)
        answer_finished(c);
    else if (r == 1)
        schedule(c, (uint64_t)c->interval_ns);
}

static void send_whole(struct conn *c, const char *status, const char *body, size_t n)
{
    char head[512];
    size_t k = (size_t)sprintf(head,
                               "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                               "x-request-id: req_bench\r\n%s\r\n",
                               status, n, c->stopping ? "Connection: close\r\n" : "");
    char *whole = malloc(k + n);
    memcpy(whole, head, k);
    memcpy(whole + k, body, n);
    int r = conn_send(c, whole, k + n);
    free(whole);
    if (r < 0)
        conn_close(c);
    else
        answer_finished(c);
}

static void send_json(struct conn *c)
{
    char body[8192];
    size_t n = put_event(body, c->format, now_ns(), 40);
    n += put_closing(body + n, c->format, &c->sum, body, n);
    send_whole(c, "200 OK", body, n);
}

static void send_stream(struct conn *c)
{
    char head[512];
    size_t n = (size_t)sprintf(head,
                               "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                               "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n"
                               "x-request-id: req_bench\r\nopenai-processing-ms: 12\r\n%s\r\n",
                               c->stopping ? "Connection: close\r\n" : "");
    if (conn_send(c, head, n) < 0) {
        conn_close(c);
        return;
    }
    long wait = c->first_ns;
    if (c->jitter && c->interval_ns)
        wait += random() % c->interval_ns;
    if (!c->out.length)
        schedule(c, (uint64_t)wait);
}

/* Requests. */

static void read_model(struct conn *c, const char *request, size_t n)
{
    int messages = 0;
    c->events = 100;
    c->filler = 40;
    c->per_write = 1;
    c->interval_ns = c->first_ns = c->jitter = 0;
    const char *p = memmem(request, n, "bench-n", 7), *end = request + n;
    for (p = p ? p + 6 : end; p < end;) {
        char key = *p++;
        long value = 0;
        for (; p < end && *p >= '0' && *p <= '9'; p++)
            value = value * 10 + (*p - '0');
        switch (key) {
        case 'n': c->events = value; break;
        case 'i': c->interval_ns = value * 1000; break;
        case 's': c->filler = value > MAX_FILLER ? MAX_FILLER : value; break;
        case 'c': c->per_write = value ? value : 1; break;
        case 'f': c->first_ns = value * 1000; break;
        case 'j': c->jitter = value; break;
        case 'a': messages = value != 0; break;
        }
        if (p >= end || *p != '-')
            break;
        p++;
    }
    c->format = messages ? &MESSAGES : &CHAT;
}

/* Length of the body that follows a head of `head` bytes, unchunked in place; -1 while it is not whole. *used is
 * what it took on the wire. */
static long whole_body(struct conn *c, size_t head, int chunked, size_t announced, size_t *used)
{
    char *start = c->in.bytes + head, *end = c->in.bytes + c->in.length, *from = start, *to = start;
    if (!chunked) {
        *used = announced;
        return (size_t)(end - start) < announced ? -1 : (long)announced;
    }
    /* Look before moving anything: the request may not be whole yet. */
    for (int pass = 0; pass < 2; pass++) {
        for (from = start;;) {
            char *line = memmem(from, (size_t)(end - from), "\r\n", 2);
            if (!line)
                return -1;
            size_t size = strtoul(from, NULL, 16);
            from = line + 2;
            if ((size_t)(end - from) < size + 2)
                return -1;
            if (pass) {
                memmove(to, from, size);
                to += size;
            }
            from += size + 2;
            if (!size)
                break;
        }
    }
    *used = (size_t)(from - start);
    return to - start;
}

static void take_request(struct conn *c)
{
    char *head_end = c->in.length ? memmem(c->in.bytes, c->in.length, "\r\n\r\n", 4) : NULL;
    if (!head_end || c->busy)
        return;
    size_t head = (size_t)(head_end + 4 - c->in.bytes), used;
    *head_end = 0;
    const char *field = strcasestr(c->in.bytes, "\r\ncontent-length:");
    size_t announced = field ? strtoul(field + 17, NULL, 10) : 0;
    int chunked = strcasestr(c->in.bytes, "\r\ntransfer-encoding: chunked") != NULL;
    int stopping = strcasestr(c->in.bytes, "\r\nconnection: close") != NULL;
    field = strcasestr(c->in.bytes, "\r\nx-body-sum:");
    uint64_t expected = field ? strtoull(field + 13, NULL, 16) : 0;
    int checked = field != NULL;
    *head_end = '\r';
    long length = whole_body(c, head, chunked, announced, &used);
    if (length < 0)
        return;
    const char *body = c->in.bytes + head;
    c->busy = 1;
    c->stopping = stopping;
    c->written = 0;
    c->due = 0;
    sum_start(&c->sum);
    sum_add(&c->sum, body, (size_t)length);
    int intact = !checked || sum_value(&c->sum) == expected;
    sum_start(&c->sum);
    read_model(c, body, (size_t)length);
    int stream = memmem(body, (size_t)length, "\"stream\":true", 13) != NULL;
    c->in.length -= head + used;
    memmove(c->in.bytes, c->in.bytes + head + used, c->in.length);
    if (!intact) {
        static const char text[] = "{\"error\":{\"message\":\"the request body was changed\"}}";
        send_whole(c, "400 Bad Request", text, sizeof text - 1);
    } else if (stream) {
        send_stream(c);
    } else {
        c->format = &CHAT_JSON;
        send_json(c);
    }
}

/* Sockets. */

static void on_readable(struct conn *c)
{
    for (;;) {
        if (c->in.capacity - c->in.length < READ_SIZE + 1) {
            c->in.capacity = c->in.length + 2 * READ_SIZE + 1;
            c->in.bytes = realloc(c->in.bytes, c->in.capacity);
        }
        ssize_t r = recv(c->fd, c->in.bytes + c->in.length, READ_SIZE, 0);
        if (r == 0 || (r < 0 && errno != EAGAIN)) {
            conn_close(c);
            return;
        }
        if (r < 0)
            break;
        c->in.length += (size_t)r;
        if (r < READ_SIZE)
            break;
    }
    take_request(c);
    if (!c->dead && !c->in.length && (c->busy || c->in.capacity > KEEP_BUFFER)) {
        free(c->in.bytes);
        memset(&c->in, 0, sizeof c->in);
    }
}

static void on_writable(struct conn *c)
{
    if (!c->out.length)
        return;
    ssize_t r = send(c->fd, c->out.bytes + c->out_sent, c->out.length - c->out_sent, MSG_NOSIGNAL);
    if (r < 0 && errno != EAGAIN) {
        conn_close(c);
        return;
    }
    c->out_sent += r > 0 ? (size_t)r : 0;
    if (c->out_sent < c->out.length)
        return;
    c->out.length = c->out_sent = 0;
    conn_want_write(c, 0);
    if (c->busy && c->written < c->events && c->heap_index < 0)
        schedule(c, (uint64_t)c->interval_ns);
    else
        answer_finished(c);
}

static void accept_all(int listener)
{
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct conn *c = calloc(1, sizeof *c);
        c->fd = fd;
        c->heap_index = -1;
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &e);
    }
}

static int listen_on(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, 4096)) {
        perror("upstream: cannot listen");
        exit(1);
    }
    getsockname(fd, (struct sockaddr *)&address, &size);
    printf("LISTENING %d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static struct timespec next_wait(void)
{
    struct timespec wait = {.tv_sec = ready_length ? 0 : 1};
    if (!ready_length && heap_length) {
        uint64_t t = now_ns(), left = heap[0]->due > t ? heap[0]->due - t : 0;
        if (left < 1000000000ull)
            wait = (struct timespec){.tv_nsec = (long)left};
    }
    return wait;
}

static void run_due(void)
{
    uint64_t t = now_ns();
    while (heap_length && heap[0]->due <= t) {
        struct conn *c = heap[0];
        heap_remove(c);
        if (!c->out.length)
            advance(c);
    }
    int turns = ready_length;
    for (int i = 0; i < turns; i++) {
        struct conn *c = ready[i];
        c->is_ready = 0;
        if (!c->dead && !c->out.length)
            advance(c);
    }
    memmove(ready, ready + turns, (size_t)(ready_length - turns) * sizeof *ready);
    ready_length -= turns;
}

int main(int argc, char **argv)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    memset(filler, 'x', sizeof filler);
    for (size_t i = 5; i < sizeof filler; i += 6)
        filler[i] = ' ';
    int listener = listen_on(argc > 1 ? atoi(argv[1]) : 0);
    poll_fd = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, events[512];
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &e);
    while (!stop) {
        struct timespec wait = next_wait();
        int n = epoll_pwait2(poll_fd, events, 512, &wait, NULL);
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (!c) {
                accept_all(listener);
                continue;
            }
            if (!c->dead && events[i].events & EPOLLOUT)
                on_writable(c);
            if (!c->dead && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                on_readable(c);
        }
        run_due();
        free_dead();
    }
    return 0;
}
