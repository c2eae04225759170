/* What the adapters in C share: the adapter protocol on stdin and stdout (PROTOCOL.md). It knows no library. */

#include <ctype.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The end of the JSON value that begins at text. */
static inline const char *skip_value(const char *text)
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
static inline const char *field(const char *object, const char *name)
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
static inline long number(const char *command, const char *name, long otherwise)
{
    const char *value = field(command, name);
    return value && (*value == '-' || isdigit((unsigned char)*value)) ? strtol(value, NULL, 10) : otherwise;
}

/* The text that begins at this value, one byte for each character; the caller frees it. Empty if it is none. */
static inline char *text_at(const char *from)
{
    char *made = calloc(1, from ? strlen(from) + 1 : 1), *to = made;
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

/* A text of the command; the caller frees it. Empty if there is none. */
static inline char *text(const char *command, const char *name)
{
    return text_at(field(command, name));
}

/* Whether a field of the command is true; otherwise if it is not there. */
static inline int flag(const char *command, const char *name, int otherwise)
{
    const char *value = field(command, name);
    return value ? strncmp(value, "true", 4) == 0 : otherwise;
}

static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER; /* callbacks of libraries come from threads */

static inline void put_text(FILE *out, const char *bytes, size_t count)
{
    putc('"', out);
    for (size_t i = 0; i < count; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (byte == '"' || byte == '\\')
            fprintf(out, "\\%c", byte);
        else if (byte < 0x20 || byte > 0x7e)
            fprintf(out, "\\u%04x", byte);
        else
            putc(byte, out);
    }
    putc('"', out);
}

/* Write one line. In the form, %d is a number, %s a text (NULL is empty), %b bytes and their count, %t a truth, %j JSON. */
static inline void say(const char *form, ...)
{
    va_list given;
    pthread_mutex_lock(&writing);
    va_start(given, form);
    for (const char *at = form; *at; at++) {
        if (*at != '%') {
            putchar(*at);
            continue;
        }
        switch (*++at) {
        case 'd':
            printf("%lld", va_arg(given, long long));
            break;
        case 't':
            fputs(va_arg(given, int) ? "true" : "false", stdout);
            break;
        case 'j':
            fputs(va_arg(given, const char *), stdout);
            break;
        case 's': {
            const char *text = va_arg(given, const char *);
            put_text(stdout, text ? text : "", text ? strlen(text) : 0);
            break;
        }
        case 'b': {
            const char *bytes = va_arg(given, const char *);
            put_text(stdout, bytes, va_arg(given, size_t));
            break;
        }
        }
    }
    putchar('\n');
    fflush(stdout);
    va_end(given);
    pthread_mutex_unlock(&writing);
}
