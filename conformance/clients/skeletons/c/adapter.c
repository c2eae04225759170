/* An adapter for plumbline gate: replace what says "my library". For each command of the adapter protocol that the library
 * supports, add a branch of act() and its feature. The functions before it read and write the JSON of the protocol. */

#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROTOCOL "PROTOCOL"
#define FEATURES "" /* each in double quotes, with commas between them */

/* The end of the JSON value that begins at text. */
static const char *skip_value(const char *text)
{
    int depth = 0;
    for (; *text; text++) {
        if (*text == '"') {
            for (text++; *text && *text != '"'; text++)
                if (*text == '\\' && text[1])
                    text++;
            if (!*text)
                break;
        } else if (*text == '{' || *text == '[') {
            depth++;
        } else if (*text == '}' || *text == ']') {
            if (depth-- == 0)
                break;
        } else if (*text == ',' && depth == 0) {
            break;
        }
    }
    return text;
}

/* Where the value of a field of the object begins; NULL if it has none. */
static const char *field(const char *object, const char *name)
{
    const char *at = strchr(object, '{');
    while (at && (*at == '{' || *at == ',')) {
        for (at++; isspace((unsigned char)*at); at++)
            ;
        if (*at != '"')
            return NULL;
        const char *end = at + 1;
        while (*end && *end != '"')
            end++;
        int found = strlen(name) == (size_t)(end - at - 1) && strncmp(at + 1, name, strlen(name)) == 0;
        const char *value = strchr(end, ':');
        if (!value)
            return NULL;
        for (value++; isspace((unsigned char)*value); value++)
            ;
        if (found)
            return value;
        at = skip_value(value);
    }
    return NULL;
}

/* A number of the command, or otherwise. */
static long number(const char *command, const char *name, long otherwise)
{
    const char *value = field(command, name);
    return value && (*value == '-' || isdigit((unsigned char)*value)) ? strtol(value, NULL, 10) : otherwise;
}

/* A text of the command, one byte for each character; the caller frees it. Empty if there is none. */
static char *text(const char *command, const char *name)
{
    const char *from = field(command, name);
    char *made = calloc(1, strlen(command) + 1), *to = made;
    if (!made || !from || *from != '"')
        return made;
    for (from++; *from && *from != '"'; from++) {
        if (*from != '\\') {
            *to++ = *from;
            continue;
        }
        from++;
        if (*from == 'u') {
            char digits[5] = {0};
            memcpy(digits, from + 1, 4);
            *to++ = (char)strtol(digits, NULL, 16);
            from += 4;
        } else {
            const char *place = strchr("bfnrt", *from);
            *to++ = place && *place ? "\b\f\n\r\t"[place - "bfnrt"] : *from;
        }
    }
    return made;
}

/* Write bytes as a JSON text of one character for each. */
static void say_text(const char *bytes, size_t count)
{
    putchar('"');
    for (size_t i = 0; i < count; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (byte == '"' || byte == '\\')
            printf("\\%c", byte);
        else if (byte < 0x20 || byte > 0x7e)
            printf("\\u%04x", byte);
        else
            putchar(byte);
    }
    putchar('"');
}

static void say_ok(long id)
{
    printf("{\"id\": %ld, \"ok\": {}}\n", id);
}

static void say_error(long id, const char *message, const char *type)
{
    printf("{\"id\": %ld, \"error\": {\"text\": ", id);
    say_text(message, strlen(message));
    printf(", \"type\": ");
    say_text(type, strlen(type));
    printf("}}\n");
}

/* One command: writes its answer. */
static void act(const char *command)
{
    long id = number(command, "id", 0);
    char *what = text(command, "do");
    if (strcmp(what, "connect") == 0) {
        char *url = text(command, "url");
        say_ok(id); /* my library connects to url */
        free(url);
    } else if (strcmp(what, "close") == 0) {
        say_ok(id);
    } else {
        say_error(id, "unknown command", "unsupported");
    }
    free(what);
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    printf("{\"hello\": \"plumbline.adapter/1\", \"protocol\": \"" PROTOCOL "\", \"library\": \"my library\", "
           "\"version\": \"0\", \"language\": \"c\", \"features\": [" FEATURES "]}\n");
    fflush(stdout);
    while (getline(&line, &room, stdin) > 0) {
        act(line);
        fflush(stdout);
    }
    free(line);
    return 0;
}
