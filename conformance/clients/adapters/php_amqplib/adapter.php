<?php

// The adapter of php-amqplib: reads commands and writes answers and events, as in PROTOCOL.md.
//
// php-amqplib reads when wait() is called, here for each channel in turn, between commands.

declare(strict_types=1);

use PhpAmqpLib\Channel\AMQPChannel;
use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Exception\AMQPBasicCancelException;
use PhpAmqpLib\Exception\AMQPExceptionInterface;
use PhpAmqpLib\Exception\AMQPProtocolChannelException;
use PhpAmqpLib\Exception\AMQPTimeoutException;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Package;
use PhpAmqpLib\Wire\AMQPTable;

require_once 'PhpAmqpLib/autoload.php';

const FEATURES = 'reset declare publish publish.mandatory publish.async publish.message_id confirm consume get ack ack.multiple '
    . 'nack reject qos tx bind blocked';
const WAIT_S = 0.001;
const PAUSE_US = 5000;

function say(array $line): void
{
    fwrite(STDOUT, json_encode($line, JSON_THROW_ON_ERROR) . "\n");
    fflush(STDOUT);
}

/** One character for each byte, and back. */
function text(string $bytes): string
{
    return mb_convert_encoding($bytes, 'UTF-8', 'ISO-8859-1');
}

function bytes(string $text): string
{
    return mb_convert_encoding($text, 'ISO-8859-1', 'UTF-8');
}

function describe(Throwable $error): array
{
    $code = $error->getCode();
    return ['text' => $error->getMessage(), 'type' => get_class($error)] + (is_int($code) && $code > 0 ? ['code' => $code] : []);
}

final class Unsupported extends Exception
{
}

/** Commands in, what the library does and reports out. */
final class Adapter
{
    private ?AMQPStreamConnection $connection = null;
    /** @var array<int, AMQPChannel> */
    private array $channels = [];
    /** @var array<string, array{AMQPChannel, string}> */
    private array $consumers = [];
    /** @var list<AMQPMessage> */
    private array $messages = [];
    private SplObjectStorage $confirming; // channels
    private SplObjectStorage $published; // number and channel of each message that waits for its confirm

    public function __construct()
    {
        $this->confirming = new SplObjectStorage();
        $this->published = new SplObjectStorage();
    }

    /** Let php-amqplib dispatch what has come, and look after its heartbeats. */
    public function turn(): void
    {
        try {
            foreach ([$this->connection, ...$this->channels] as $channel) {
                $this->dispatch($channel);
            }
            $this->connection?->checkHeartBeat();
            $this->connection?->select(0, PAUSE_US);
        } catch (AMQPExceptionInterface $error) {
            $this->connection = null;
            say(['event' => 'disconnected'] + describe($error));
            $this->unconfirmed();
        }
    }

    private function dispatch($channel): void
    {
        try {
            do { // not without blocking: that way it never looks whether the broker's heartbeats are missed
                $channel->wait(null, false, WAIT_S);
            } while ($channel->hasPendingMethods());
        } catch (AMQPTimeoutException) {
            return; // nothing has come
        } catch (AMQPBasicCancelException $error) {
            foreach ($this->consumers as $name => [$mine, $tag]) {
                if ($mine === $channel && $tag === $error->consumerTag) {
                    say(['event' => 'ended', 'subscription' => $name, 'text' => 'cancelled by the server']);
                }
            }
        } catch (AMQPProtocolChannelException $error) {
            $number = array_search($channel, $this->channels, true);
            unset($this->channels[$number]);
            say(['event' => 'channel-closed', 'channel' => $number] + describe($error));
            $this->unconfirmed($channel);
        }
    }

    public function waits(): bool
    {
        return $this->connection === null;
    }

    /** The fields of "ok"; throws what the library throws. */
    public function act(array $command): array
    {
        switch ($command['do']) {
            case 'connect':
                return $this->connect($command['url']);
            case 'close':
                return $this->close();
            case 'reset':
                $this->consumers = $this->messages = [];
                return $this->close();
            case 'channel':
                return $this->open($command['channel']);
            case 'cancel':
                [$channel, $tag] = $this->consumers[$command['subscription']];
                unset($this->consumers[$command['subscription']]);
                $channel->basic_cancel($tag);
                return [];
            case 'ack':
                $this->messages[$command['ref'] - 1]->ack($command['multiple'] ?? false);
                return [];
            case 'nack':
                $this->messages[$command['ref'] - 1]->nack($command['requeue'] ?? true, $command['multiple'] ?? false);
                return [];
            case 'reject':
                $this->messages[$command['ref'] - 1]->reject($command['requeue'] ?? true);
                return [];
        }
        $channel = $this->channels[$command['channel'] ?? 0] ?? throw new RuntimeException('the channel is closed');
        return $this->actOn($channel, $command);
    }

    private function actOn(AMQPChannel $channel, array $command): array
    {
        switch ($command['do']) {
            case 'declare':
                $arguments = new AMQPTable($command['arguments'] ?? []);
                [$durable, $exclusive, $auto_delete] = array_map(
                    fn ($name) => $command[$name] ?? false,
                    ['durable', 'exclusive', 'auto_delete'],
                );
                $queue = $command['queue'];
                return ['queue' => $channel->queue_declare($queue, false, $durable, $exclusive, $auto_delete, false, $arguments)[0]];
            case 'exchange':
                $channel->exchange_declare($command['exchange'], $command['type'], false, false, $command['auto_delete'] ?? false);
                return [];
            case 'bind':
                $channel->queue_bind($command['queue'], $command['exchange'], $command['routing_key']);
                return [];
            case 'confirm':
                $channel->set_ack_handler(fn (AMQPMessage $message) => $this->confirmed($message, true));
                $channel->set_nack_handler(fn (AMQPMessage $message) => $this->confirmed($message, false));
                $channel->confirm_select();
                $this->confirming[$channel] = true;
                return [];
            case 'publish':
                return $this->publish($channel, $command);
            case 'consume':
                $name = $command['subscription'];
                $handed = fn (AMQPMessage $came) => say(
                    ['event' => 'message', 'subscription' => $name, 'message' => $this->message($came)]
                );
                $tag = $channel->basic_consume($command['queue'], '', false, $command['no_ack'] ?? false, false, false, $handed);
                $this->consumers[$name] = [$channel, $tag];
                return [];
            case 'get':
                $came = $channel->basic_get($command['queue'], $command['no_ack'] ?? false);
                return ['message' => $came === null ? null : $this->message($came)];
            case 'qos':
                $channel->basic_qos(0, $command['prefetch_count'], $command['global'] ?? false);
                return [];
            case 'tx.select':
                $channel->tx_select();
                return [];
            case 'tx.commit':
                $channel->tx_commit();
                return [];
            case 'tx.rollback':
                $channel->tx_rollback();
                return [];
        }
        throw new Unsupported('unknown command');
    }

    private function connect(string $url): array
    {
        $parts = parse_url($url);
        parse_str($parts['query'] ?? '', $query);
        $vhost = urldecode(substr($parts['path'] ?? '', 1));
        $this->channels = [];
        $this->connection = new AMQPStreamConnection(
            $parts['host'],
            $parts['port'],
            $parts['user'],
            $parts['pass'],
            vhost: $vhost === '' ? '/' : $vhost,
            heartbeat: (int) ($query['heartbeat'] ?? 0),
        );
        $this->connection->set_connection_block_handler(fn ($reason) => say(['event' => 'blocked', 'text' => $reason]));
        $this->connection->set_connection_unblock_handler(fn () => say(['event' => 'unblocked']));
        return [];
    }

    private function close(): array
    {
        [$mine, $this->connection, $this->channels] = [$this->connection, null, []];
        $mine?->close();
        return [];
    }

    private function open(int $number): array
    {
        $channel = $this->connection->channel();
        $channel->set_return_listener(fn ($code, $reason, $exchange, $key, AMQPMessage $message) => say(
            ['event' => 'returned', 'code' => $code, 'text' => $reason, 'routing_key' => $key, 'data' => text($message->getBody())]
        ));
        $this->channels[$number] = $channel;
        return [];
    }

    private function publish(AMQPChannel $channel, array $command): array
    {
        $first = $command['publish'] ?? 0;
        $properties = isset($command['message_id']) ? ['message_id' => $command['message_id']] : [];
        if (isset($command['headers'])) {
            $properties['application_headers'] = new AMQPTable($command['headers']);
        }
        for ($number = $first; $number < $first + ($command['count'] ?? 1); $number++) {
            $data = $command['data'] . (isset($command['count']) ? "-$number" : '');
            $message = new AMQPMessage(bytes($data), $properties);
            if (isset($this->confirming[$channel])) {
                $this->published[$message] = [$number, $channel];
            }
            $mandatory = $command['mandatory'] ?? false;
            $channel->basic_publish($message, $command['exchange'] ?? '', $command['routing_key'], $mandatory);
        }
        return [];
    }

    /** wait() threw: who publishes and waits knows that no confirm will come. */
    private function unconfirmed(?AMQPChannel $channel = null): void
    {
        foreach (clone $this->published as $message) {
            if ($channel === null || $this->published[$message][1] === $channel) {
                $this->confirmed($message, false);
            }
        }
    }

    private function confirmed(AMQPMessage $message, bool $ack): void
    {
        say(['event' => 'confirmed', 'publish' => $this->published[$message][0], 'ack' => $ack]);
        unset($this->published[$message]);
    }

    private function message(AMQPMessage $message): array
    {
        $this->messages[] = $message;
        $headers = $message->has('application_headers') ? $message->get('application_headers')->getNativeData() : [];
        return [
            'ref' => count($this->messages),
            'data' => text($message->getBody()),
            'headers' => (object) array_map(fn ($value) => [(string) $value], $headers),
            'exchange' => $message->getExchange(),
            'routing_key' => $message->getRoutingKey(),
            'delivery_tag' => $message->getDeliveryTag(),
            'redelivered' => $message->isRedelivered(),
        ];
    }
}

function answer(Adapter $adapter, array $command): array
{
    try {
        return ['ok' => (object) $adapter->act($command)];
    } catch (Unsupported $error) {
        return ['error' => ['text' => $error->getMessage(), 'type' => 'unsupported']];
    } catch (Throwable $error) {
        return ['error' => describe($error)];
    }
}

say([
    'hello' => 'plumbline.adapter/1', 'protocol' => 'amqp', 'library' => 'php-amqplib', 'version' => Package::VERSION,
    'language' => 'php ' . PHP_VERSION, 'features' => explode(' ', FEATURES),
]);
$adapter = new Adapter();
while (true) {
    [$readable, $writable, $other] = [[STDIN], null, null];
    if (stream_select($readable, $writable, $other, $adapter->waits() ? null : 0) > 0) {
        $line = fgets(STDIN);
        if ($line === false) {
            break;
        }
        $command = json_decode($line, true, 512, JSON_THROW_ON_ERROR);
        say(['id' => $command['id']] + answer($adapter, $command));
    } elseif (!$adapter->waits()) {
        $adapter->turn();
    }
}
