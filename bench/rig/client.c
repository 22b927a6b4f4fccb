/* The load client of the benchmark: one thread, epoll, loopback only. Checks every byte of every answer.
 *
 *     client -p PORT [-P /path] [-m MODEL] [-c CONNECTIONS] [-r REQUESTS] [-s 0|1] [-B PROMPT_BYTES]
 *            [-t SECONDS] [-w]
 *
 * Closed loop with keep-alive: each connection asks again as soon as it has its answer. Prints one JSON line:
 * counts, requests that failed (transport, status) or were wrong (bytes, number of events, ending), and times in
 * microseconds. -w opens one stream per connection, prints READY when each has had its first event, and holds
 * them until standard input ends. MODEL says what upstream.c will answer, and so what must arrive.
 */
#define _GNU_SOURCE
#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Histogram with 64 steps per power of two: under 2 % of error, no memory per sample. */

#define STEPS 64

struct histogram {
    uint64_t count[64 * STEPS], total;
};

static void histogram_add(struct histogram *h, uint64_t ns)
{
    int i = (int)ns;
    if (ns >= STEPS) {
        int power = 63 - __builtin_clzll(ns);
        i = (power - 5) * STEPS + (int)((ns >> (power - 6)) & (STEPS - 1));
    }
    h->count[i]++;
    h->total++;
}

static double histogram_us(const struct histogram *h, double quantile)
{
    uint64_t wanted = (uint64_t)((double)h->total * quantile), seen = 0;
    for (int i = 0; i < 64 * STEPS; i++) {
        seen += h->count[i];
        if (seen > wanted) {
            int power = i / STEPS + 5;
            uint64_t ns = i < STEPS ? (uint64_t)i : (1ull << power) + ((uint64_t)(i % STEPS) << (power - 6));
            return (double)ns / 1000.0;
        }
    }
    return 0;
}

/* One connection and the answer on it. */

enum part { COVERED, DIGITS, ENDING };
enum framing { SIZE, SIZE_LINE, DATA, DATA_LINE, TRAILER };

struct conn {
    int fd, in_body, chunked, has_length, close_after;
    size_t sent;
    uint64_t left, asked_at;
    enum framing framing;
    char head[16384];
    size_t head_length;
    /* Checking. */
    enum part part;
    struct sum sum;
    uint64_t digits, mark_value;
    int digits_seen, in_mark, first_byte_seen;
    long events;
    size_t ending_seen;
    int wrong;
};

static const char *ending;
static size_t ending_length;
static long expected_events;

static struct histogram first_byte, event_age, whole;
static uint64_t answered, failed, wrong, events, body_bytes, reads;
static char errors[8][96];
static int error_count;

static const char *path = "/v1/chat/completions", *model = "bench-n100-i0";
static int port, connections = 1, streaming = 1, timeout_s = 60, holding, prompt_bytes;
static long requests = 1, started;
static int poll_fd, held;
static char *request;
static size_t request_length;

static void note_error(const char *text)
{
    if (error_count < 8)
        snprintf(errors[error_count++], sizeof errors[0], "%s", text);
}

static void check_marks(struct conn *c, const char *p, size_t n, uint64_t t)
{
    for (const char *end = p + n; p < end; p++) {
        if (!c->in_mark) {
            p = memchr(p, TIME_MARK, (size_t)(end - p));
            if (!p)
                return;
            c->in_mark = 1;
            c->mark_value = 0;
        } else if (*p == TIME_MARK) {
            c->in_mark = 0;
            c->events++;
            histogram_add(&event_age, t > c->mark_value ? t - c->mark_value : 0);
            if (holding && c->events == 1 && ++held == connections) {
                printf("READY\n");
                fflush(stdout);
            }
        } else {
            c->mark_value = c->mark_value * 10 + (uint64_t)(*p - '0');
        }
    }
}

static int hex_value(char ch)
{
    if (ch >= '0' && ch <= '9')
        return ch - '0';
    ch |= 32;
    return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

static void check_body(struct conn *c, const char *p, size_t n, uint64_t t)
{
    if (!n)
        return;
    body_bytes += n;
    if (!c->first_byte_seen) {
        c->first_byte_seen = 1;
        histogram_add(&first_byte, t - c->asked_at);
    }
    if (c->part == COVERED) {
        const char *mark = memchr(p, SUM_MARK, n);
        size_t covered = mark ? (size_t)(mark - p) : n;
        sum_add(&c->sum, p, covered);
        check_marks(c, p, covered, t);
        if (!mark)
            return;
        c->part = DIGITS;
        p += covered + 1;
        n -= covered + 1;
    }
    for (; c->part == DIGITS && n; p++, n--) {
        int value = hex_value(*p);
        c->wrong |= value < 0;
        c->digits = c->digits << 4 | (uint64_t)(value & 15);
        if (++c->digits_seen == SUM_DIGITS)
            c->part = ENDING;
    }
    if (!n)
        return;
    if (c->ending_seen + n > ending_length || memcmp(ending + c->ending_seen, p, n))
        c->wrong = 1;
    c->ending_seen += n;
}

static int answer_is_right(struct conn *c)
{
    return !c->wrong && c->part == ENDING && c->digits == sum_value(&c->sum)
        && c->ending_seen == ending_length && c->events == expected_events;
}

/* Asking. */

static void ask(struct conn *c);

static void want_write(struct conn *c, int wants)
{
    struct epoll_event e = {.events = EPOLLIN | (wants ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &e);
}

static void send_request(struct conn *c)
{
    while (c->sent < request_length) {
        ssize_t r = send(c->fd, request + c->sent, request_length - c->sent, MSG_NOSIGNAL);
        if (r < 0) {
            if (errno == EAGAIN || errno == ENOTCONN)
                want_write(c, 1);
            return; /* any other failure shows when reading */
        }
        c->sent += (size_t)r;
    }
    want_write(c, 0);
}

static void finish(struct conn *c, const char *failure)
{
    if (failure) {
        failed++;
        note_error(failure);
    } else {
        answered++;
        events += (uint64_t)c->events;
        histogram_add(&whole, now_ns() - c->asked_at);
        if (!answer_is_right(c)) {
            char text[96];
            snprintf(text, sizeof text, "wrong answer: %ld of %ld events, checksum %s, ending %zu of %zu",
                     c->events, expected_events, c->digits == sum_value(&c->sum) ? "right" : "wrong",
                     c->ending_seen, ending_length);
            wrong++;
            note_error(text);
        }
    }
    if (failure || c->close_after) {
        close(c->fd);
        c->fd = -1;
    }
    ask(c);
}

static void ask(struct conn *c)
{
    int fd = c->fd;
    if (started >= requests) {
        if (fd >= 0)
            close(fd);
        c->fd = -1;
        return;
    }
    started++;
    memset(c, 0, offsetof(struct conn, head));
    memset(&c->head_length, 0, sizeof *c - offsetof(struct conn, head_length));
    sum_start(&c->sum);
    c->fd = fd;
    c->asked_at = now_ns();
    if (fd >= 0) {
        send_request(c);
        return;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, c->fd, &e);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS)
        note_error("connect failed");
}

/* Reading. */

/* Take the head from what was read; 0 while it is not whole, else 1 with *p and *n moved past it. */
static int read_head(struct conn *c, const char **p, size_t *n)
{
    size_t room = sizeof c->head - 1 - c->head_length, take = *n < room ? *n : room, before = c->head_length;
    memcpy(c->head + before, *p, take);
    c->head_length += take;
    c->head[c->head_length] = 0;
    char *end = strstr(c->head, "\r\n\r\n");
    if (!end)
        return 0;
    size_t used = (size_t)(end + 4 - c->head) - before;
    *p += used;
    *n -= used;
    end[2] = 0;
    const char *field = strcasestr(c->head, "\r\ncontent-length:");
    c->has_length = field != NULL;
    c->left = field ? strtoull(field + 17, NULL, 10) : 0;
    c->chunked = strcasestr(c->head, "\r\ntransfer-encoding: chunked") != NULL;
    c->close_after = strcasestr(c->head, "\r\nconnection: close") != NULL;
    c->in_body = 1;
    return 1;
}

/* 1: the body is whole; 0: more to come; -1: malformed. */
static int read_body(struct conn *c, const char *p, size_t n, uint64_t t)
{
    if (!c->chunked) {
        size_t take = !c->has_length || n < c->left ? n : (size_t)c->left;
        check_body(c, p, take, t);
        c->left -= c->has_length ? take : 0;
        return c->has_length && !c->left;
    }
    for (; n; p++, n--) {
        switch (c->framing) {
        case SIZE:
            if (*p == '\r' || *p == ';')
                c->framing = SIZE_LINE;
            else if (hex_value(*p) < 0)
                return -1;
            else
                c->left = c->left << 4 | (uint64_t)hex_value(*p);
            break;
        case SIZE_LINE:
            if (*p == '\n')
                c->framing = c->left ? DATA : TRAILER;
            break;
        case DATA: {
            size_t take = n < c->left ? n : (size_t)c->left;
            check_body(c, p, take, t);
            c->left -= take;
            p += take - 1;
            n -= take - 1;
            if (!c->left)
                c->framing = DATA_LINE;
            break;
        }
        case DATA_LINE:
            if (*p == '\n')
                c->framing = SIZE;
            break;
        case TRAILER:
            if (*p == '\n')
                return 1;
            if (*p != '\r')
                return -1;
            break;
        }
    }
    return 0;
}

static void on_readable(struct conn *c)
{
    static char buffer[1 << 18];
    ssize_t r = recv(c->fd, buffer, sizeof buffer, 0);
    uint64_t t = now_ns();
    if (r < 0 && errno == EAGAIN)
        return;
    reads++;
    if (r <= 0) {
        int by_close = r == 0 && c->in_body && !c->chunked && !c->has_length;
        c->close_after = 1;
        finish(c, by_close ? NULL : r ? "connection reset" : c->in_body ? "body cut short" : "no answer");
        return;
    }
    const char *p = buffer;
    size_t n = (size_t)r;
    if (!c->in_body) {
        if (!read_head(c, &p, &n))
            return;
        if (strncmp(c->head + 8, " 200", 4)) {
            c->close_after = 1;
            finish(c, c->head);
            return;
        }
    }
    int done = read_body(c, p, n, t);
    if (done)
        finish(c, done < 0 ? "malformed chunk" : NULL);
}

/* Setting up and reporting. */

static void make_request(void)
{
    char *body = malloc((size_t)prompt_bytes + 1024);
    size_t n = (size_t)sprintf(body,
                               "{\"model\":\"%s\",\"stream\":%s,\"max_tokens\":100,\"messages\":"
                               "[{\"role\":\"user\",\"content\":\"hello ",
                               model, streaming ? "true" : "false");
    for (int i = 0; i < prompt_bytes; i++)
        body[n++] = i % 7 == 6 ? ' ' : (char)('a' + i % 5);
    n += (size_t)sprintf(body + n, "\"}]}");
    struct sum sum;
    sum_start(&sum);
    sum_add(&sum, body, n);
    request = malloc(n + 1024);
    request_length = (size_t)sprintf(request,
                                     "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: bench/1\r\n"
                                     "Accept: */*\r\nAuthorization: Bearer not-a-key\r\n"
                                     "Content-Type: application/json\r\nX-Body-Sum: %016llx\r\n"
                                     "Content-Length: %zu\r\n\r\n",
                                     path, port, (unsigned long long)sum_value(&sum), n);
    memcpy(request + request_length, body, n);
    request_length += n;
    free(body);
}

static void set_expectations(void)
{
    if (!streaming) {
        ending = "\"}";
        expected_events = 1;
    } else {
        const char *count = strstr(model, "-n");
        expected_events = count ? atol(count + 2) : 100;
        ending = strstr(model, "-a1")
            ? "\"},\"usage\":{\"output_tokens\":100}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
            : "\"}\n\ndata: [DONE]\n\n";
    }
    ending_length = strlen(ending);
}

static void report(double seconds)
{
    printf("{\"ok\":%llu,\"failed\":%llu,\"wrong\":%llu,\"events\":%llu,\"bytes\":%llu,\"reads\":%llu,"
           "\"seconds\":%.4f,\"ttfb_us\":[%.1f,%.1f],\"event_us\":[%.1f,%.1f],\"whole_us\":[%.1f,%.1f],"
           "\"errors\":[",
           (unsigned long long)answered, (unsigned long long)failed, (unsigned long long)wrong,
           (unsigned long long)events, (unsigned long long)body_bytes, (unsigned long long)reads, seconds,
           histogram_us(&first_byte, .5), histogram_us(&first_byte, .99), histogram_us(&event_age, .5),
           histogram_us(&event_age, .99), histogram_us(&whole, .5), histogram_us(&whole, .99));
    for (int i = 0; i < error_count; i++) {
        printf("%s\"", i ? "," : "");
        for (const char *p = errors[i]; *p; p++)
            if (*p >= 32 && *p < 127 && *p != '"' && *p != '\\')
                putchar(*p);
        putchar('"');
    }
    printf("]}\n");
}

static void read_options(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "p:P:m:c:r:s:B:t:w")) > 0) {
        switch (option) {
        case 'p': port = atoi(optarg); break;
        case 'P': path = optarg; break;
        case 'm': model = optarg; break;
        case 'c': connections = atoi(optarg); break;
        case 'r': requests = atol(optarg); break;
        case 's': streaming = atoi(optarg); break;
        case 'B': prompt_bytes = atoi(optarg); break;
        case 't': timeout_s = atoi(optarg); break;
        case 'w': holding = 1; break;
        default: exit(2);
        }
    }
    if (holding)
        requests = connections;
    if (connections > requests)
        connections = (int)requests;
}

int main(int argc, char **argv)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    read_options(argc, argv);
    make_request();
    set_expectations();
    poll_fd = epoll_create1(0);
    if (holding) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, 0, &e);
    }
    struct epoll_event ready[512];
    uint64_t began = now_ns(), latest = began + (uint64_t)timeout_s * 1000000000ull;
    int opened = 0, released = 0;
    while (answered + failed < (uint64_t)requests && !released) {
        /* Many at once would overflow the listener's queue. */
        for (int i = 0; i < (holding ? 50 : connections) && opened < connections; i++, opened++) {
            struct conn *c = calloc(1, sizeof *c);
            c->fd = -1;
            ask(c);
        }
        int n = epoll_wait(poll_fd, ready, 512, opened < connections ? 2 : 100);
        if (now_ns() > latest) {
            note_error("timed out");
            failed += (uint64_t)requests - answered - failed;
            break;
        }
        for (int i = 0; i < n; i++) {
            struct conn *c = ready[i].data.ptr;
            if (!c) {
                released = 1;
                continue;
            }
            if (c->fd >= 0 && ready[i].events & EPOLLOUT && c->sent < request_length)
                send_request(c);
            if (c->fd >= 0 && ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                on_readable(c);
        }
    }
    report((double)(now_ns() - began) / 1e9);
    return 0;
}
