/* The adapter of libnats (nats.c): reads commands and writes answers and events, as in PROTOCOL.md. The library has threads of its
 * own, which call back. */

#define _POSIX_C_SOURCE 200809L
#include <nats/nats.h>

#include "../shared/gate.h"

#define FEATURES                                                                                                                  \
    "\"tls\", \"publish\", \"publish.flush\", \"request\", \"subscribe\", \"unsubscribe.after\", \"js.publish\", \"fetch\", "    \
    "\"fetch.no_wait\", \"fetch.heartbeat\", \"push\", \"ordered\", \"kv\", \"kv.watch\", \"ack\", \"ack.nak\", "                 \
    "\"ack.nak.delay\", \"ack.progress\", \"ack.term\", \"ack.sync\", \"reconnect\", \"reconnect.buffer\", \"ping\", "            \
    "\"lame-duck\", \"drain\""
#define MOST 4096
#define MS 1000000LL /* nanoseconds */
#define API_WAIT_MS 4000
#define CONNECT_WAIT_MS 8000 /* for a busy machine */
#define FLUSH_WAIT_MS 2000
#define FOR_EVER_MS 3600000

static natsConnection *connection;
static jsCtx *js;
static natsMsg *messages[MOST]; /* by ref */
static long kept;
static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER; /* callbacks come from threads */
static struct named {
    char *name;
    void *is; /* a natsSubscription or a kvStore */
} subscriptions[MOST], pulls[MOST], buckets[MOST];

/* Where something of this name is kept, or can be. */
static struct named *place(struct named *in, const char *name)
{
    while (in->name && strcmp(in->name, name))
        in++;
    if (!in->name)
        in->name = strdup(name);
    return in;
}

/* What a message is as JSON; the caller frees it. It is kept, for its ref. */
static char *handed(natsMsg *message)
{
    char *made;
    size_t size;
    const char **keys = NULL;
    int key_count = 0;
    FILE *out = open_memstream(&made, &size);
    pthread_mutex_lock(&keeping);
    messages[kept++] = message;
    fprintf(out, "{\"ref\": %ld, \"subject\": ", kept);
    pthread_mutex_unlock(&keeping);
    put_text(out, natsMsg_GetSubject(message), strlen(natsMsg_GetSubject(message)));
    if (natsMsg_GetReply(message)) {
        fputs(", \"reply\": ", out);
        put_text(out, natsMsg_GetReply(message), strlen(natsMsg_GetReply(message)));
    }
    fputs(", \"data\": ", out);
    put_text(out, natsMsg_GetData(message), (size_t)natsMsg_GetDataLength(message));
    fputs(", \"headers\": {", out);
    if (natsMsgHeader_Keys(message, &keys, &key_count) != NATS_OK)
        key_count = 0;
    for (int i = 0; i < key_count; i++) {
        const char **values = NULL;
        int value_count = 0;
        natsMsgHeader_Values(message, keys[i], &values, &value_count);
        fputs(i ? ", " : "", out);
        put_text(out, keys[i], strlen(keys[i]));
        fputs(": [", out);
        for (int j = 0; j < value_count; j++) {
            fputs(j ? ", " : "", out);
            put_text(out, values[j], strlen(values[j]));
        }
        fputs("]", out);
        free((void *)values);
    }
    free((void *)keys);
    fputs("}}", out);
    fclose(out);
    return made;
}

/* The ref of what is no natsMsg. */
static long long unsettled(void)
{
    pthread_mutex_lock(&keeping);
    long long ref = ++kept;
    pthread_mutex_unlock(&keeping);
    return ref;
}

static void failed(long id, natsStatus status, jsErrCode code)
{
    natsStatus last = NATS_OK;
    const char *why = nats_GetLastError(&last);
    if (!why || !*why || last != status)
        why = natsStatus_GetText(status);
    if (code)
        say("{\"id\": %d, \"error\": {\"text\": %s, \"type\": \"natsStatus\", \"code\": %d}}", (long long)id, why, (long long)code);
    else
        say("{\"id\": %d, \"error\": {\"text\": %s, \"type\": \"natsStatus\"}}", (long long)id, why);
}

static void done(long id, natsStatus status, jsErrCode code)
{
    if (status == NATS_OK)
        say("{\"id\": %d, \"ok\": {}}", (long long)id);
    else
        failed(id, status, code);
}

/* What the library reports */

static void on_message(natsConnection *nc, natsSubscription *from, natsMsg *message, void *subscription)
{
    (void)nc, (void)from;
    if (!message)
        return; /* a time-out of SubscribeTimeout, which is not used here */
    char *json = handed(message);
    say("{\"event\": \"message\", \"subscription\": %s, \"message\": %j}", (char *)subscription, json);
    free(json);
}

static void on_error(natsConnection *nc, natsSubscription *about, natsStatus status, void *closure)
{
    (void)closure;
    const char *last = NULL;
    natsConnection_GetLastError(nc, &last);
    const char *text = last && *last ? last : natsStatus_GetText(status);
    for (struct named *known = subscriptions; about && known->name; known++)
        if (known->is == about) {
            say("{\"event\": \"error\", \"text\": %s, \"type\": %s, \"subscription\": %s}", text, natsStatus_GetText(status), known->name);
            return;
        }
    say("{\"event\": \"error\", \"text\": %s, \"type\": %s}", text, natsStatus_GetText(status));
}

static void on_connection(natsConnection *nc, void *event)
{
    const char *last = NULL;
    natsConnection_GetLastError(nc, &last);
    say("{\"event\": %s, \"text\": %s}", (char *)event, last);
}

struct watched {
    kvWatcher *watcher;
    char *name;
};

static void *watch(void *given)
{
    struct watched *mine = given;
    for (;;) {
        kvEntry *entry = NULL;
        natsStatus status = kvWatcher_Next(&entry, mine->watcher, FOR_EVER_MS);
        if (status != NATS_OK && status != NATS_TIMEOUT)
            return NULL;
        if (status == NATS_TIMEOUT)
            continue;
        if (!entry) {
            say("{\"event\": \"up-to-date\", \"subscription\": %s}", mine->name);
            continue;
        }
        kvOperation operation = kvEntry_Operation(entry);
        const char *headers = operation == kvOp_Delete  ? "{\"KV-Operation\": [\"DEL\"]}"
                              : operation == kvOp_Purge ? "{\"KV-Operation\": [\"PURGE\"]}"
                                                        : "{}";
        say("{\"event\": \"message\", \"subscription\": %s, \"message\": {\"ref\": %d, \"subject\": %s, \"data\": %b, \"headers\": %j}}",
            mine->name, unsettled(), kvEntry_Key(entry), (const char *)kvEntry_Value(entry), (size_t)kvEntry_ValueLen(entry), headers);
        kvEntry_Destroy(entry);
    }
}

/* Commands */

static natsStatus connect_to(const char *command)
{
    natsOptions *options = NULL;
    char *url = text(command, "url"), *authorities = text(command, "tls_ca");
    natsStatus status = natsOptions_Create(&options);
    natsOptions_SetURL(options, url);
    natsOptions_SetTimeout(options, CONNECT_WAIT_MS);
    natsOptions_SetErrorHandler(options, on_error, NULL);
    natsOptions_SetDisconnectedCB(options, on_connection, "disconnected");
    natsOptions_SetReconnectedCB(options, on_connection, "reconnected");
    natsOptions_SetClosedCB(options, on_connection, "closed");
    natsOptions_SetLameDuckModeCB(options, on_connection, "lame-duck");
    natsOptions_SetAllowReconnect(options, flag(command, "reconnect", 0));
    natsOptions_SetMaxReconnect(options, -1);
    if (number(command, "reconnect_wait_ms", 0))
        natsOptions_SetReconnectWait(options, number(command, "reconnect_wait_ms", 0));
    if (number(command, "buffer_bytes", 0))
        natsOptions_SetReconnectBufSize(options, (int)number(command, "buffer_bytes", 0));
    if (number(command, "ping_ms", 0)) {
        natsOptions_SetPingInterval(options, number(command, "ping_ms", 0));
        natsOptions_SetMaxPingsOut(options, (int)number(command, "pings_out", 2));
    }
    if (*authorities) {
        char *host = strstr(url, "://");
        host = strdup(host ? host + 3 : url);
        host[strcspn(host, ":/")] = 0;
        natsOptions_SetSecure(options, true);
        natsOptions_LoadCATrustedCertificates(options, authorities);
        natsOptions_SetExpectedHostname(options, host); /* without it the name is not verified */
        free(host);
    }
    if (status == NATS_OK)
        status = natsConnection_Connect(&connection, options);
    if (status == NATS_OK) {
        jsOptions wanted;
        jsOptions_Init(&wanted);
        wanted.Wait = API_WAIT_MS;
        status = natsConnection_JetStream(&js, connection, &wanted);
    }
    memset(pulls, 0, sizeof pulls);
    memset(buckets, 0, sizeof buckets);
    natsOptions_Destroy(options);
    free(url);
    free(authorities);
    return status;
}

/* The headers of a command: a name, and one value or a list of them. */
static void add_headers(natsMsg *message, const char *command)
{
    const char *at = field(command, "headers");
    while (at && (*at == '{' || *at == ',')) {
        for (at++; isspace((unsigned char)*at); at++)
            ;
        if (*at != '"')
            return;
        char *name = text_at(at);
        at = strchr(at + strlen(name), ':') + 1; /* names have no colon, and nothing to escape */
        while (isspace((unsigned char)*at))
            at++;
        const char *value = *at == '[' ? at + 1 : at;
        for (;;) {
            while (isspace((unsigned char)*value))
                value++;
            if (*value != '"')
                break;
            char *one = text_at(value);
            natsMsgHeader_Add(message, name, one);
            free(one);
            value = skip_value(value);
            if (*at != '[' || *value != ',')
                break;
            value++;
        }
        free(name);
        at = skip_value(at);
    }
}

static natsMsg *message_of(const char *command)
{
    natsMsg *made = NULL;
    char *subject = text(command, "subject"), *reply = text(command, "reply"), *data = text(command, "data");
    natsMsg_Create(&made, subject, *reply ? reply : NULL, data, (int)strlen(data));
    add_headers(made, command);
    free(subject);
    free(reply);
    free(data);
    return made;
}

static natsStatus subscribe(const char *command)
{
    char *name = text(command, "subscription"), *subject = text(command, "subject"), *queue = text(command, "queue");
    natsSubscription *made = NULL;
    natsStatus status = *queue ? natsConnection_QueueSubscribe(&made, connection, subject, queue, on_message, strdup(name))
                               : natsConnection_Subscribe(&made, connection, subject, on_message, strdup(name));
    place(subscriptions, name)->is = made;
    free(name);
    free(subject);
    free(queue);
    return status;
}

/* js.subscribe and ordered */
static natsStatus js_subscribe(const char *command, int ordered, jsErrCode *code)
{
    char *name = text(command, "subscription"), *subject = text(command, "subject");
    char *stream = text(command, "stream"), *consumer = text(command, "consumer");
    natsSubscription *made = NULL;
    jsSubOptions wanted;
    jsSubOptions_Init(&wanted);
    wanted.Stream = stream;
    wanted.ManualAck = true;
    wanted.Ordered = ordered;
    if (!ordered)
        wanted.Consumer = consumer;
    if (number(command, "heartbeat_ms", 0))
        wanted.Config.Heartbeat = number(command, "heartbeat_ms", 0) * MS;
    natsStatus status = js_Subscribe(&made, js, *subject ? subject : NULL, on_message, strdup(name), NULL, &wanted, code);
    place(subscriptions, name)->is = made;
    free(name);
    free(subject);
    free(stream);
    free(consumer);
    return status;
}

static void fetch(long id, const char *command)
{
    char *stream = text(command, "stream"), *consumer = text(command, "consumer"), *key, *list;
    size_t size;
    natsStatus status = NATS_OK;
    jsErrCode code = 0;
    natsMsgList got = {0};
    jsFetchRequest wanted;
    FILE *keyed = open_memstream(&key, &size);
    fprintf(keyed, "%s %s", stream, consumer);
    fclose(keyed);
    struct named *pull = place(pulls, key);
    if (!pull->is) {
        jsSubOptions bound;
        jsSubOptions_Init(&bound);
        bound.Stream = stream;
        bound.Consumer = consumer;
        status = js_PullSubscribe((natsSubscription **)&pull->is, js, NULL, NULL, NULL, &bound, &code);
    }
    jsFetchRequest_Init(&wanted);
    wanted.Batch = (int)number(command, "batch", 1);
    wanted.Expires = number(command, "expires_ms", 0) * MS;
    wanted.NoWait = flag(command, "no_wait", 0);
    wanted.Heartbeat = number(command, "heartbeat_ms", 0) * MS;
    if (status == NATS_OK)
        status = wanted.NoWait || wanted.Heartbeat
                     ? natsSubscription_FetchRequest(&got, pull->is, &wanted)
                     : natsSubscription_Fetch(&got, pull->is, wanted.Batch, number(command, "expires_ms", 0), &code);
    FILE *out = open_memstream(&list, &size);
    for (int i = 0; i < got.Count; i++) {
        char *json = handed(got.Msgs[i]);
        fprintf(out, "%s%s", i ? ", " : "", json);
        free(json);
        got.Msgs[i] = NULL; /* kept */
    }
    fclose(out);
    natsMsgList_Destroy(&got);
    if (status == NATS_OK)
        say("{\"id\": %d, \"ok\": {\"messages\": [%j]}}", (long long)id, list);
    else
        failed(id, status, code);
    free(list);
    free(key);
    free(stream);
    free(consumer);
}

static void js_publish(long id, const char *command)
{
    natsMsg *message = message_of(command);
    char *msg_id = text(command, "msg_id");
    jsPubAck *ack = NULL;
    jsErrCode code = 0;
    jsPubOptions wanted;
    jsPubOptions_Init(&wanted);
    wanted.MaxWait = number(command, "timeout_ms", 1000);
    if (*msg_id)
        wanted.MsgId = msg_id;
    natsStatus status = js_PublishMsg(&ack, js, message, &wanted, &code);
    if (status == NATS_OK)
        say("{\"id\": %d, \"ok\": {\"stream\": %s, \"seq\": %d, \"duplicate\": %t}}", (long long)id, ack->Stream,
            (long long)ack->Sequence, (int)ack->Duplicate);
    else
        failed(id, status, code);
    jsPubAck_Destroy(ack);
    natsMsg_Destroy(message);
    free(msg_id);
}

static void publish(long id, const char *command)
{
    natsMsg *message = message_of(command);
    natsStatus status = natsConnection_PublishMsg(connection, message);
    if (status == NATS_OK && flag(command, "flush", 0))
        status = natsConnection_FlushTimeout(connection, number(command, "timeout_ms", FLUSH_WAIT_MS));
    done(id, status, 0);
    natsMsg_Destroy(message);
}

static void request(long id, const char *command)
{
    natsMsg *message = message_of(command), *reply = NULL;
    natsStatus status = natsConnection_RequestMsg(&reply, connection, message, number(command, "timeout_ms", 1000));
    natsMsg_Destroy(message);
    if (status != NATS_OK) {
        failed(id, status, 0);
        return;
    }
    char *json = handed(reply);
    say("{\"id\": %d, \"ok\": {\"message\": %j}}", (long long)id, json);
    free(json);
}

static natsStatus ack(const char *command)
{
    natsMsg *message = messages[number(command, "ref", 1) - 1];
    char *kind = text(command, "kind");
    long delay = number(command, "delay_ms", 0);
    natsStatus status;
    if (!strcmp(kind, "nak"))
        status = delay ? natsMsg_NakWithDelay(message, delay, NULL) : natsMsg_Nak(message, NULL);
    else if (!strcmp(kind, "progress"))
        status = natsMsg_InProgress(message, NULL);
    else if (!strcmp(kind, "term"))
        status = natsMsg_Term(message, NULL);
    else
        status = natsMsg_Ack(message, NULL);
    free(kind);
    return status;
}

static natsStatus ack_sync(const char *command, jsErrCode *code)
{
    jsOptions wanted;
    jsOptions_Init(&wanted);
    wanted.Wait = number(command, "timeout_ms", 1000);
    return natsMsg_AckSync(messages[number(command, "ref", 1) - 1], &wanted, code);
}

static void kv(long id, const char *command, const char *verb)
{
    char *bucket = text(command, "bucket"), *key = text(command, "key"), *data = text(command, "data");
    int size = (int)strlen(data);
    uint64_t revision = 0;
    kvEntry *entry = NULL;
    struct named *known = place(buckets, bucket);
    natsStatus status = known->is ? NATS_OK : js_KeyValue((kvStore **)&known->is, js, bucket);
    if (status == NATS_OK) {
        if (!strcmp(verb, "put"))
            status = kvStore_Put(&revision, known->is, key, data, size);
        else if (!strcmp(verb, "create"))
            status = kvStore_Create(&revision, known->is, key, data, size);
        else if (!strcmp(verb, "update"))
            status = kvStore_Update(&revision, known->is, key, data, size, (uint64_t)number(command, "revision", 0));
        else if (!strcmp(verb, "delete"))
            status = kvStore_Delete(known->is, key);
        else if (!strcmp(verb, "purge"))
            status = kvStore_Purge(known->is, key, NULL);
        else if (!strcmp(verb, "get"))
            status = kvStore_Get(&entry, known->is, key);
        else if (!strcmp(verb, "watch")) {
            struct watched *mine = calloc(1, sizeof *mine);
            pthread_t thread;
            mine->name = text(command, "subscription");
            status = kvStore_WatchAll(&mine->watcher, known->is, NULL);
            if (status == NATS_OK)
                pthread_create(&thread, NULL, watch, mine);
        }
    }
    if (status != NATS_OK)
        failed(id, status, 0);
    else if (entry)
        say("{\"id\": %d, \"ok\": {\"message\": {\"ref\": %d, \"subject\": %s, \"data\": %b}}}", (long long)id, unsettled(), kvEntry_Key(entry),
            (const char *)kvEntry_Value(entry), (size_t)kvEntry_ValueLen(entry));
    else
        say("{\"id\": %d, \"ok\": {\"seq\": %d}}", (long long)id, (long long)revision);
    kvEntry_Destroy(entry);
    free(bucket);
    free(key);
    free(data);
}

static void answer(long id, const char *verb, const char *command)
{
    char *name = text(command, "subscription");
    natsSubscription *known = *name ? place(subscriptions, name)->is : NULL;
    jsErrCode code = 0;
    if (!strcmp(verb, "connect"))
        done(id, connect_to(command), 0);
    else if (!strcmp(verb, "flush"))
        done(id, natsConnection_FlushTimeout(connection, FLUSH_WAIT_MS), 0);
    else if (!strcmp(verb, "drain"))
        done(id, natsConnection_Drain(connection), 0);
    else if (!strcmp(verb, "close")) {
        natsConnection_Close(connection);
        done(id, NATS_OK, 0);
    } else if (!strcmp(verb, "publish"))
        publish(id, command);
    else if (!strcmp(verb, "request"))
        request(id, command);
    else if (!strcmp(verb, "subscribe"))
        done(id, subscribe(command), 0);
    else if (!strcmp(verb, "unsubscribe") && number(command, "after", 0))
        done(id, natsSubscription_AutoUnsubscribe(known, (int)number(command, "after", 0)), 0);
    else if (!strcmp(verb, "unsubscribe") || !strcmp(verb, "stop"))
        done(id, natsSubscription_Unsubscribe(known), 0);
    else if (!strcmp(verb, "js.publish"))
        js_publish(id, command);
    else if (!strcmp(verb, "js.subscribe")) {
        natsStatus status = js_subscribe(command, 0, &code);
        done(id, status, code);
    } else if (!strcmp(verb, "ordered")) {
        natsStatus status = js_subscribe(command, 1, &code);
        done(id, status, code);
    } else if (!strcmp(verb, "fetch"))
        fetch(id, command);
    else if (!strcmp(verb, "ack"))
        done(id, ack(command), 0);
    else if (!strcmp(verb, "ack.sync")) {
        natsStatus status = ack_sync(command, &code);
        done(id, status, code);
    } else if (!strncmp(verb, "kv.", 3))
        kv(id, command, verb + 3);
    else
        say("{\"id\": %d, \"error\": {\"text\": \"unknown command\", \"type\": \"unsupported\"}}", (long long)id);
    free(name);
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    say("{\"hello\": \"plumbline.adapter/1\", \"protocol\": \"nats\", \"library\": \"libnats\", \"version\": %s, \"language\": \"c\", "
        "\"features\": [" FEATURES "]}",
        nats_GetVersion());
    while (getline(&line, &room, stdin) > 0) {
        char *verb = text(line, "do");
        answer(number(line, "id", 0), verb, line);
        free(verb);
    }
    _Exit(0); /* threads of the library may still be calling back */
}
