/* The adapter of librabbitmq (rabbitmq-c): reads commands and writes answers and events, as in PROTOCOL.md.
 *
 * The library hands over frames when it is asked for them, and leaves to its user what they mean: here they are read as soon
 * as its socket has something. A publish with confirms waits for the next basic.ack or basic.nack. */

#define _POSIX_C_SOURCE 200809L
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>
#include <sys/select.h>
#include <unistd.h>

#include "../shared/gate.h"

#define FEATURES                                                                                                      \
    "\"declare\", \"publish\", \"publish.mandatory\", \"publish.message_id\", \"confirm\", \"consume\", \"get\", "     \
    "\"ack\", \"ack.multiple\", \"nack\", \"reject\", \"qos\", \"tx\", \"bind\", \"blocked\""
#define MOST 256
#define FRAME_MAX 131072

static amqp_connection_state_t connection;
static struct {
    amqp_channel_t channel;
    uint64_t tag;
    int connection; /* which one it came over */
} messages[MOST]; /* by ref */
static int connections;
static long kept;
static struct {
    char name[64], tag[128];
    amqp_channel_t channel;
} consumers[MOST];
static int consumer_count;
static int confirming[MOST];
static int settled; /* 1: basic.ack came, -1: basic.nack */

static amqp_bytes_t given(char *value)
{
    return amqp_cstring_bytes(value);
}

static void lost(const char *why, int code)
{
    say("{\"event\": \"disconnected\", \"text\": %s, \"code\": %d}", why, (long long)code);
    amqp_destroy_connection(connection);
    connection = NULL;
}

static void closed_channel(amqp_channel_t channel, amqp_channel_close_t *close)
{
    amqp_channel_close_ok_t ok = {0};
    say("{\"event\": \"channel-closed\", \"channel\": %d, \"code\": %d, \"text\": %b}", (long long)channel,
        (long long)close->reply_code, close->reply_text.bytes, close->reply_text.len);
    amqp_send_method(connection, channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
}

static void closed_connection(amqp_connection_close_t *close)
{
    amqp_connection_close_ok_t ok = {0};
    char *why = strndup(close->reply_text.bytes, close->reply_text.len);
    int code = close->reply_code;
    amqp_send_method(connection, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &ok);
    lost(why, code);
    free(why);
}

/* Answer a command whose RPC failed. */
static void failed(long id, amqp_rpc_reply_t reply, amqp_channel_t channel)
{
    const char *why = "no reply";
    int code = 0;
    char *text = NULL;
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
        why = amqp_error_string2(reply.library_error);
    if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
        amqp_channel_close_t *close = reply.reply.decoded;
        why = text = strndup(close->reply_text.bytes, close->reply_text.len);
        code = close->reply_code;
        closed_channel(channel, close);
    } else if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
        amqp_connection_close_t *close = reply.reply.decoded;
        why = text = strndup(close->reply_text.bytes, close->reply_text.len);
        code = close->reply_code;
        closed_connection(close);
    }
    say("{\"id\": %d, \"error\": {\"text\": %s, \"type\": \"amqp_rpc_reply_t\", \"code\": %d}}", (long long)id, why, (long long)code);
    free(text);
}

static int refused(long id, int status)
{
    if (status == AMQP_STATUS_OK)
        return 0;
    say("{\"id\": %d, \"error\": {\"text\": %s, \"type\": \"amqp_status_enum\"}}", (long long)id, amqp_error_string2(status));
    return 1;
}

/* The fields of a message, without the braces around them. */
static void hand_over(const char *before, amqp_channel_t channel, uint64_t tag, amqp_boolean_t redelivered, amqp_bytes_t exchange,
                      amqp_bytes_t key, amqp_bytes_t body, const char *after)
{
    messages[kept].channel = channel;
    messages[kept].tag = tag;
    messages[kept].connection = connections;
    kept++;
    char form[512];
    snprintf(form, sizeof form,
             "%s\"message\": {\"ref\": %%d, \"data\": %%b, \"exchange\": %%b, \"routing_key\": %%b, \"delivery_tag\": %%d, "
             "\"redelivered\": %%t}%s",
             before, after);
    say(form, (long long)kept, body.bytes, body.len, exchange.bytes, exchange.len, key.bytes, key.len, (long long)tag, redelivered);
}

static const char *consumer_of(amqp_bytes_t tag)
{
    for (int i = 0; i < consumer_count; i++)
        if (strlen(consumers[i].tag) == tag.len && memcmp(consumers[i].tag, tag.bytes, tag.len) == 0)
            return consumers[i].name;
    return "";
}

static void handle(amqp_frame_t *frame)
{
    amqp_message_t message;
    void *decoded = frame->payload.method.decoded;
    if (frame->frame_type != AMQP_FRAME_METHOD)
        return;
    switch (frame->payload.method.id) {
    case AMQP_BASIC_DELIVER_METHOD: {
        amqp_basic_deliver_t *came = decoded;
        char before[160];
        snprintf(before, sizeof before, "{\"event\": \"message\", \"subscription\": \"%s\", ", consumer_of(came->consumer_tag));
        if (amqp_read_message(connection, frame->channel, &message, 0).reply_type != AMQP_RESPONSE_NORMAL)
            return;
        hand_over(before, frame->channel, came->delivery_tag, came->redelivered, came->exchange, came->routing_key, message.body, "}");
        amqp_destroy_message(&message);
        return;
    }
    case AMQP_BASIC_RETURN_METHOD: {
        amqp_basic_return_t *came = decoded;
        if (amqp_read_message(connection, frame->channel, &message, 0).reply_type != AMQP_RESPONSE_NORMAL)
            return;
        say("{\"event\": \"returned\", \"code\": %d, \"text\": %b, \"routing_key\": %b, \"data\": %b}", (long long)came->reply_code,
            came->reply_text.bytes, came->reply_text.len, came->routing_key.bytes, came->routing_key.len, message.body.bytes,
            message.body.len);
        amqp_destroy_message(&message);
        return;
    }
    case AMQP_BASIC_ACK_METHOD:
        settled = 1;
        return;
    case AMQP_BASIC_NACK_METHOD:
        settled = -1;
        return;
    case AMQP_BASIC_CANCEL_METHOD:
        say("{\"event\": \"ended\", \"subscription\": %s, \"text\": \"basic.cancel\"}",
            consumer_of(((amqp_basic_cancel_t *)decoded)->consumer_tag));
        return;
    case AMQP_CONNECTION_BLOCKED_METHOD: {
        amqp_bytes_t reason = ((amqp_connection_blocked_t *)decoded)->reason;
        say("{\"event\": \"blocked\", \"text\": %b}", reason.bytes, reason.len);
        return;
    }
    case AMQP_CONNECTION_UNBLOCKED_METHOD:
        say("{\"event\": \"unblocked\"}");
        return;
    case AMQP_CHANNEL_CLOSE_METHOD:
        closed_channel(frame->channel, decoded);
        settled = -1;
        return;
    case AMQP_CONNECTION_CLOSE_METHOD:
        closed_connection(decoded);
        return;
    }
}

/* Handle what the library has; wait for it as long as the limit says, NULL: without a limit. */
static int turn(struct timeval *limit)
{
    amqp_frame_t frame;
    int status = amqp_simple_wait_frame_noblock(connection, &frame, limit);
    if (status == AMQP_STATUS_TIMEOUT)
        return 0;
    if (status != AMQP_STATUS_OK) {
        lost(amqp_error_string2(status), 0);
        return 0;
    }
    handle(&frame);
    return connection != NULL;
}

static void connect_to(long id, char *url)
{
    struct amqp_connection_info server;
    const char *query = strstr(url, "heartbeat=");
    int heartbeat = query ? atoi(query + strlen("heartbeat=")) : 0;
    url[strcspn(url, "?")] = '\0';
    amqp_default_connection_info(&server);
    amqp_parse_url(url, &server);
    connection = amqp_new_connection();
    if (refused(id, amqp_socket_open(amqp_tcp_socket_new(connection), server.host, server.port))) {
        amqp_destroy_connection(connection);
        connection = NULL;
        return;
    }
    connections++;
    /* What the broker tells only those who say that they understand it. */
    amqp_table_entry_t understood[2] = {{.key = amqp_cstring_bytes("consumer_cancel_notify")}, {.key = amqp_cstring_bytes("connection.blocked")}};
    for (int i = 0; i < 2; i++) {
        understood[i].value.kind = AMQP_FIELD_KIND_BOOLEAN;
        understood[i].value.value.boolean = 1;
    }
    amqp_table_entry_t capabilities = {.key = amqp_cstring_bytes("capabilities")};
    capabilities.value.kind = AMQP_FIELD_KIND_TABLE;
    capabilities.value.value.table = (amqp_table_t){2, understood};
    amqp_table_t properties = {1, &capabilities};
    amqp_rpc_reply_t reply = amqp_login_with_properties(connection, server.vhost, 0, FRAME_MAX, heartbeat, &properties,
                                                        AMQP_SASL_METHOD_PLAIN, server.user, server.password);
    memset(confirming, 0, sizeof confirming);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        failed(id, reply, 0);
    else
        say("{\"id\": %d, \"ok\": {}}", (long long)id);
}

static void publish(long id, const char *command, amqp_channel_t channel)
{
    char *exchange = text(command, "exchange"), *key = text(command, "routing_key"), *data = text(command, "data");
    char *name = text(command, "message_id");
    amqp_basic_properties_t properties = {0};
    long number_ = number(command, "publish", 0);
    if (*name) {
        properties._flags = AMQP_BASIC_MESSAGE_ID_FLAG;
        properties.message_id = given(name);
    }
    settled = 0;
    int status = amqp_basic_publish(connection, channel, given(exchange), given(key), flag(command, "mandatory", 0), 0, &properties, given(data));
    if (!refused(id, status)) {
        if (confirming[channel]) {
            while (connection && !settled)
                turn(NULL);
            say("{\"event\": \"confirmed\", \"publish\": %d, \"ack\": %t}", (long long)number_, settled == 1);
        }
        say("{\"id\": %d, \"ok\": {}}", (long long)id);
    }
    free(exchange);
    free(key);
    free(data);
    free(name);
}

static amqp_table_t arguments_of(const char *command, amqp_table_entry_t *entries)
{
    static char overflow[64];
    amqp_table_t made = {0, entries};
    const char *arguments = field(command, "arguments");
    if (!arguments)
        return made;
    long limit = number(arguments, "x-max-length", -1);
    char *policy = text(arguments, "x-overflow");
    if (limit >= 0) {
        entries[made.num_entries].key = amqp_cstring_bytes("x-max-length");
        entries[made.num_entries].value.kind = AMQP_FIELD_KIND_I32;
        entries[made.num_entries++].value.value.i32 = (int32_t)limit;
    }
    if (*policy) {
        snprintf(overflow, sizeof overflow, "%s", policy);
        entries[made.num_entries].key = amqp_cstring_bytes("x-overflow");
        entries[made.num_entries].value.kind = AMQP_FIELD_KIND_UTF8;
        entries[made.num_entries++].value.value.bytes = amqp_cstring_bytes(overflow);
    }
    free(policy);
    return made;
}

/* A command that is an RPC on a channel: 1 if it was one. Writes its answer unless the RPC failed. */
static int call(long id, const char *what, const char *command, amqp_channel_t channel)
{
    char *queue = text(command, "queue"), *exchange = text(command, "exchange"), *key = text(command, "routing_key");
    char *type = text(command, "type"), *subscription = text(command, "subscription");
    amqp_table_entry_t entries[2];
    int known = 1, done = 0;
    if (strcmp(what, "channel") == 0) {
        done = amqp_channel_open(connection, channel) != NULL;
        confirming[channel] = 0;
    } else if (strcmp(what, "declare") == 0) {
        amqp_queue_declare_ok_t *ok =
            amqp_queue_declare(connection, channel, given(queue), 0, flag(command, "durable", 0), flag(command, "exclusive", 0),
                               flag(command, "auto_delete", 0), arguments_of(command, entries));
        if (ok) {
            say("{\"id\": %d, \"ok\": {\"queue\": %b}}", (long long)id, ok->queue.bytes, ok->queue.len);
            done = 2;
        }
    } else if (strcmp(what, "exchange") == 0) {
        done = amqp_exchange_declare(connection, channel, given(exchange), given(type), 0, 0, flag(command, "auto_delete", 0), 0,
                                     amqp_empty_table) != NULL;
    } else if (strcmp(what, "bind") == 0) {
        done = amqp_queue_bind(connection, channel, given(queue), given(exchange), given(key), amqp_empty_table) != NULL;
    } else if (strcmp(what, "confirm") == 0) {
        done = amqp_confirm_select(connection, channel) != NULL;
        confirming[channel] = done;
    } else if (strcmp(what, "qos") == 0) {
        uint16_t count = (uint16_t)number(command, "prefetch_count", 0);
        done = amqp_basic_qos(connection, channel, 0, count, flag(command, "global", 0)) != NULL;
    } else if (strcmp(what, "consume") == 0) {
        snprintf(consumers[consumer_count].name, sizeof consumers[0].name, "%s", subscription);
        snprintf(consumers[consumer_count].tag, sizeof consumers[0].tag, "plumbline.%s.%d", subscription, consumer_count);
        done = amqp_basic_consume(connection, channel, given(queue), given(consumers[consumer_count].tag), 0,
                                  flag(command, "no_ack", 0), 0, amqp_empty_table) != NULL;
        consumers[consumer_count++].channel = channel;
    } else if (strcmp(what, "tx.select") == 0) {
        done = amqp_tx_select(connection, channel) != NULL;
    } else if (strcmp(what, "tx.commit") == 0) {
        done = amqp_tx_commit(connection, channel) != NULL;
    } else if (strcmp(what, "tx.rollback") == 0) {
        done = amqp_tx_rollback(connection, channel) != NULL;
    } else {
        known = 0;
    }
    if (done == 1)
        say("{\"id\": %d, \"ok\": {}}", (long long)id);
    else if (known && !done)
        failed(id, amqp_get_rpc_reply(connection), channel);
    free(queue);
    free(exchange);
    free(key);
    free(type);
    free(subscription);
    return known;
}

static void get(long id, const char *command, amqp_channel_t channel)
{
    char *queue = text(command, "queue"), before[64];
    amqp_message_t message;
    amqp_rpc_reply_t reply = amqp_basic_get(connection, channel, given(queue), flag(command, "no_ack", 0));
    free(queue);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) {
        failed(id, reply, channel);
    } else if (reply.reply.id == AMQP_BASIC_GET_EMPTY_METHOD) {
        say("{\"id\": %d, \"ok\": {\"message\": null}}", (long long)id);
    } else {
        amqp_basic_get_ok_t *came = reply.reply.decoded;
        reply = amqp_read_message(connection, channel, &message, 0);
        if (reply.reply_type != AMQP_RESPONSE_NORMAL) {
            failed(id, reply, channel);
            return;
        }
        snprintf(before, sizeof before, "{\"id\": %ld, \"ok\": {", id);
        hand_over(before, channel, came->delivery_tag, came->redelivered, came->exchange, came->routing_key, message.body, "}}");
        amqp_destroy_message(&message);
    }
}

static void cancel(long id, const char *command)
{
    char *name = text(command, "subscription");
    for (int i = 0; i < consumer_count; i++)
        if (strcmp(consumers[i].name, name) == 0) {
            amqp_basic_cancel_t asked = {.consumer_tag = given(consumers[i].tag)};
            amqp_method_number_t replies[] = {AMQP_BASIC_CANCEL_OK_METHOD, 0};
            amqp_channel_t channel = consumers[i].channel;
            amqp_rpc_reply_t reply = amqp_simple_rpc(connection, channel, AMQP_BASIC_CANCEL_METHOD, replies, &asked);
            if (reply.reply_type == AMQP_RESPONSE_NORMAL)
                say("{\"id\": %d, \"ok\": {}}", (long long)id);
            else
                failed(id, reply, channel);
            break;
        }
    free(name);
}

static void settle(long id, const char *what, const char *command)
{
    long ref = number(command, "ref", 1) - 1;
    amqp_channel_t channel = messages[ref].channel;
    uint64_t tag = messages[ref].tag;
    int multiple = flag(command, "multiple", 0), requeue = flag(command, "requeue", 1), status;
    if (messages[ref].connection != connections) /* its amqp_connection_state_t was destroyed */
        status = AMQP_STATUS_CONNECTION_CLOSED;
    else if (strcmp(what, "ack") == 0)
        status = amqp_basic_ack(connection, channel, tag, multiple);
    else if (strcmp(what, "nack") == 0)
        status = amqp_basic_nack(connection, channel, tag, multiple, requeue);
    else
        status = amqp_basic_reject(connection, channel, tag, requeue);
    if (!refused(id, status))
        say("{\"id\": %d, \"ok\": {}}", (long long)id);
}

static void act(const char *command)
{
    long id = number(command, "id", 0);
    amqp_channel_t channel = (amqp_channel_t)number(command, "channel", 0);
    char *what = text(command, "do");
    if (strcmp(what, "connect") == 0) {
        char *url = text(command, "url");
        connect_to(id, url);
        free(url);
    } else if (strcmp(what, "close") == 0) {
        if (connection) {
            amqp_connection_close(connection, AMQP_REPLY_SUCCESS);
            amqp_destroy_connection(connection);
            connection = NULL;
        }
        say("{\"id\": %d, \"ok\": {}}", (long long)id);
    } else if (!connection) {
        say("{\"id\": %d, \"error\": {\"text\": \"there is no connection\", \"type\": \"adapter\"}}", (long long)id);
    } else if (strcmp(what, "publish") == 0) {
        publish(id, command, channel);
    } else if (strcmp(what, "get") == 0) {
        get(id, command, channel);
    } else if (strcmp(what, "cancel") == 0) {
        cancel(id, command);
    } else if (strcmp(what, "ack") == 0 || strcmp(what, "nack") == 0 || strcmp(what, "reject") == 0) {
        settle(id, what, command);
    } else if (!call(id, what, command, channel)) {
        say("{\"id\": %d, \"error\": {\"text\": \"unknown command\", \"type\": \"unsupported\"}}", (long long)id);
    }
    free(what);
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    setvbuf(stdin, NULL, _IONBF, 0); /* so that select sees what is left */
    say("{\"hello\": \"plumbline.adapter/1\", \"protocol\": \"amqp\", \"library\": \"rabbitmq-c\", \"version\": %s, "
        "\"language\": \"c\", \"features\": [" FEATURES "]}",
        amqp_version());
    for (;;) {
        fd_set ready;
        int socket = connection ? amqp_get_sockfd(connection) : 0;
        struct timeval none = {0, 0}, pause = {0, 200000}; /* it sends heartbeats when it is asked for frames */
        FD_ZERO(&ready);
        FD_SET(0, &ready);
        FD_SET(socket, &ready);
        select(socket + 1, &ready, NULL, NULL, connection ? &pause : NULL);
        while (connection && turn(&none))
            ;
        if (FD_ISSET(0, &ready)) {
            if (getline(&line, &room, stdin) <= 0)
                break;
            act(line);
            while (connection && turn(&none))
                ;
        }
    }
    free(line);
    return 0;
}
