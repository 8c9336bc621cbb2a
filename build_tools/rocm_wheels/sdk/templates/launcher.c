/* Stands where the ROCm tree has a link to a program: wheels hold no links.
 * Starts TARGET, relative to its own folder, under the name it was called by. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words) {
    char path[PATH_MAX];
    (void)count;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0) {
        perror("/proc/self/exe");
        return 127;
    }
    path[length] = '\0';
    char *end = strrchr(path, '/');
    if (end == NULL || (size_t)(end - path) + sizeof TARGET + 1 > sizeof path) {
        fprintf(stderr, "%s: path too long\n", path);
        return 127;
    }
    strcpy(end + 1, TARGET);
    execv(path, words);
    perror(path);
    return 127;
}
