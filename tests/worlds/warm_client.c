/* What begins in place of a command: hands words, folder, environment and files to the server of warm_python.py,
   passes on signals, and ends as the command ended. In C: a Python that does the same starts for 15 ms. */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static pid_t command;

static void pass_on(int number) { kill(command, number); }

static void end(const char *why) {
    fprintf(stderr, "the warm Python is gone: %s\n", why);
    exit(1);
}

static uint64_t receive(int line) { /* eight bytes, the first counts most */
    unsigned char bytes[8];
    uint64_t number = 0;
    for (size_t have = 0; have < sizeof bytes;) {
        ssize_t more = read(line, bytes + have, sizeof bytes - have);
        if (more > 0) have += more;
        else if (more == 0 || errno != EINTR) end("no answer");
    }
    for (int i = 0; i < 8; i++) number = number << 8 | bytes[i];
    return number;
}

static void send_all(int line, const char *text, size_t size) {
    while (size) {
        ssize_t sent = write(line, text, size);
        if (sent < 0) end("no reader");
        text += sent, size -= sent;
    }
}

/* SOCKET PYTHON WORD... */
int main(int argc, char **argv) {
    struct sockaddr_un place = {.sun_family = AF_UNIX};
    strncpy(place.sun_path, argv[1], sizeof place.sun_path - 1);
    int line = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(line, (struct sockaddr *)&place, sizeof place)) end("no socket");

    char folder[4096], count[16], *text;
    size_t size;
    if (!getcwd(folder, sizeof folder)) end("no folder");
    snprintf(count, sizeof count, "%d", argc - 3);
    FILE *message = open_memstream(&text, &size);
    fwrite(folder, strlen(folder) + 1, 1, message);
    fwrite(count, strlen(count), 1, message);
    for (char **word = argv + 3; *word; word++) fputc(0, message), fputs(*word, message);
    for (char **variable = environ; *variable; variable++)
        if (strchr(*variable, '=')) fputc(0, message), fputs(*variable, message);
    fclose(message);

    unsigned char first[8];
    for (int i = 0; i < 8; i++) first[i] = (uint64_t)size >> (56 - 8 * i);
    int files[3] = {0, 1, 2};
    union { struct cmsghdr header; char space[CMSG_SPACE(sizeof files)]; } rights = {
        .header = {.cmsg_len = CMSG_LEN(sizeof files), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&rights.header), files, sizeof files);
    struct iovec part = {first, sizeof first};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof rights};
    if (sendmsg(line, &head, 0) != sizeof first) end("no files");
    send_all(line, text, size);

    command = receive(line);
    if (!command) { /* not for the server: a Python of its own */
        int first = 2 + (argc > 3 && !strcmp(argv[3], "--steps"));
        argv[first] = argv[2];
        argv += first;
        execv(argv[0], argv);
        end("no Python");
    }
    int passed[] = {SIGTERM, SIGINT, SIGHUP};
    for (int i = 0; i < 3; i++) sigaction(passed[i], &(struct sigaction){.sa_handler = pass_on}, NULL);
    int status = receive(line);
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        kill(getpid(), WTERMSIG(status));
    }
    _exit(WEXITSTATUS(status));
}
