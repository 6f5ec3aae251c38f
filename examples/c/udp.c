/* A file's worth of packets over UDP on loopback, as fast as a controller of Verus allows.
 *
 *   udp [SCHEME [PACKETS]]        forward and 5000 by default
 *
 * A child process receives. It drops each 200th packet and acknowledges the others. The parent sends, paces, and
 * detects losses. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <verus.h>

enum { PAYLOAD = 1200, PACKET = PAYLOAD + 28, MOST = 1 << 20 };  /* a packet counts from its IP header on */

struct header { uint64_t number, part, arrived_ns; };

static struct { uint64_t part; int open; } sent[MOST]; /* by packet number */
static uint8_t acknowledged[MOST], queued[MOST];       /* by part of the file */
static uint64_t queue[MOST], waiting;                  /* parts to send again */

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void require(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "udp: %s\n", what);
        exit(1);
    }
}

static void check(verus_status status) { require(status == VERUS_STATUS_OK, verus_describe(status)); }

/* A packet is lost: its part leaves again, unless another packet has brought it. */
static void send_again(uint64_t number) {
    uint64_t part = sent[number].part;
    if (sent[number].open && !acknowledged[part] && !queued[part]++) queue[waiting++] = part;
}

static int open_socket(struct sockaddr_in *address) {
    socklen_t length = sizeof *address;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    require(fd >= 0 && bind(fd, (struct sockaddr *)address, sizeof *address) == 0, "no socket");
    require(getsockname(fd, (struct sockaddr *)address, &length) == 0, "no address");
    return fd;
}

static void receive(int fd) {
    struct header packet[PAYLOAD / sizeof(struct header)];
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    while (recvfrom(fd, packet, sizeof packet, 0, (struct sockaddr *)&from, &length) > 0) {
        if (packet->number % 200 == 199) continue;
        packet->arrived_ns = now_ns();
        sendto(fd, packet, sizeof *packet, 0, (struct sockaddr *)&from, length);
    }
}

int main(int argc, char **argv) {
    const char *scheme = argc > 1 ? argv[1] : "forward";
    uint64_t parts = argc > 2 ? strtoull(argv[2], NULL, 10) : 5000;
    require(parts > 0 && parts < MOST / 4, "PACKETS is from 1 to 262143");

    char message[200] = "no controller";
    verus_controller *flow = NULL;
    require(verus_new(scheme, 1, now_ns(), PACKET, &flow, message, sizeof message) == VERUS_STATUS_OK, message);

    struct sockaddr_in receiver, sender;
    int receiving = open_socket(&receiver), fd = open_socket(&sender);
    pid_t child = fork();
    alarm(60);
    if (child == 0) receive(receiving);
    require(child > 0, "no process");
    require(connect(fd, (struct sockaddr *)&receiver, sizeof receiver) == 0, "no path");

    uint64_t start = now_ns(), departure = start, last_ack = start, done = 0, lost = 0;
    uint64_t next = 0, first = 0, fresh = 0; /* next packet, oldest that is still missed, next part */
    verus_state state;
    while (done < parts) {
        uint64_t now = now_ns();
        check(verus_tick(flow, now));
        check(verus_get_state(flow, &state));

        /* Silence: everything in flight is presumed lost. */
        if (state.in_flight_bytes > 0 && now > last_ack + 3 * state.smoothed_rtt_ns + 200000000) {
            check(verus_timeout(flow, last_ack = now));
            for (; first < next; first++) send_again(first);
            continue;
        }

        /* Send what window and pace allow. */
        int dry = waiting == 0 && fresh == parts;
        if (dry) check(verus_app_limited(flow));
        if (!dry && state.sendable_bytes >= PACKET && now >= departure) {
            struct header packet[PAYLOAD / sizeof(struct header)] = {{0}};
            uint64_t part = waiting > 0 ? queue[--waiting] : fresh++;
            require(next < MOST, "too many losses");
            queued[part] = 0;
            packet->number = next;
            packet->part = sent[next].part = part;
            sent[next].open = 1;
            if (state.in_flight_bytes == 0) last_ack = now;
            check(verus_sent(flow, now, next++, PACKET));
            send(fd, packet, sizeof packet, 0); /* one that the socket refuses is lost */
            if (departure + 1000000 < now) departure = now; /* an idle time earns no more than 1 ms */
            if (state.pacing_bits_per_s > 0) departure += 8000000000ull * PACKET / state.pacing_bits_per_s;
            check(verus_get_state(flow, &state));
        }

        /* Read acknowledgements. Wait for one, for the next tick or for a departure, at most 1 ms. */
        uint64_t until = now + 1000000;
        if (state.next_tick_ns < until) until = state.next_tick_ns;
        if (!dry && state.sendable_bytes >= PACKET && departure < until) until = departure;
        struct timespec wait = {0, until > now ? (long)(until - now) : 0};
        struct pollfd readable = {fd, POLLIN, 0};
        struct header ack;
        while (ppoll(&readable, 1, &wait, NULL) > 0 && recv(fd, &ack, sizeof ack, 0) == sizeof ack) {
            wait.tv_nsec = 0;
            if (ack.number >= next || !sent[ack.number].open) continue;
            last_ack = now = now_ns();
            verus_status status = verus_acked(flow, now, ack.number, 0, ack.arrived_ns);
            if (status != VERUS_STATUS_UNKNOWN_PACKET) check(status); /* lost so long ago that it is forgotten */
            sent[ack.number].open = 0;
            if (!acknowledged[sent[ack.number].part]++) done++;
            for (; first + 3 <= ack.number; first++) /* overtaken by three packets (RFC 9002, 6.1.1) */
                if (sent[first].open) {
                    check(verus_lost(flow, now, first));
                    send_again(first);
                    lost++;
                }
            check(verus_event_end(flow, now));
        }
    }
    check(verus_get_state(flow, &state));
    printf("%s: %llu packets arrived in %.1f ms, %llu lost, round trip %.3f ms\n", scheme, (unsigned long long)done,
           (double)(now_ns() - start) / 1e6, (unsigned long long)lost, (double)state.smoothed_rtt_ns / 1e6);
    verus_free(flow);
    kill(child, SIGTERM);
    waitpid(child, NULL, 0);
    return 0;
}
