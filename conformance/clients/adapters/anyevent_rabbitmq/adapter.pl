#!/usr/bin/perl
# The adapter of AnyEvent::RabbitMQ: reads commands and writes answers and events, as in PROTOCOL.md.

use strict;
use warnings;

use AnyEvent;
use AnyEvent::RabbitMQ;
use JSON::PP;

# Its channels have no basic.nack, and its connections no notice of being blocked. It does not connect again.
my $FEATURES = 'declare publish publish.mandatory publish.async publish.message_id confirm consume get ack ack.multiple '
    . 'reject qos tx bind';
my $CONNECTED_WITHIN_S = 8;

my ($connection, $closing, @messages, %channels, %consumers);
$| = 1;

sub say_line {
    my (%line) = @_;
    print JSON::PP->new->ascii->encode(\%line), "\n";
    return;
}

# What a callback of a failure gets: a text, or the frame of a close.
sub describe {
    my ($why) = @_;
    return (text => $why // '', type => 'failure') unless ref $why && $why->can('method_frame');
    my $frame = $why->method_frame;
    return (text => $frame->reply_text, type => ref $frame, code => $frame->reply_code + 0);
}

sub truth { return $_[0] ? JSON::PP::true : JSON::PP::false }

# The callbacks of a command: they answer it.
sub answers {
    my ($id, $ok) = @_;
    return (
        on_success => sub { say_line(id => $id, ok => $ok ? $ok->(@_) : {}) },
        on_failure => sub { say_line(id => $id, error => {describe(@_)}) },
    );
}

sub message {
    my ($channel, $method, $header, $body) = @_;
    push @messages, [$channel, $method->delivery_tag];
    my $headers = $header->headers || {};
    return {
        ref => scalar @messages,
        data => $body->to_raw_payload,
        headers => {map { $_ => ["$headers->{$_}"] } keys %$headers},
        exchange => $method->exchange,
        routing_key => $method->routing_key,
        delivery_tag => $method->delivery_tag + 0,
        redelivered => truth($method->redelivered),
    };
}

sub returned {
    my ($frame, %known) = @_;
    my $came = $frame->method_frame;
    say_line(event => 'returned', code => $came->reply_code + 0, text => $came->reply_text, routing_key => $came->routing_key, %known);
    return;
}

sub lost {
    my ($mine, @why) = @_;
    return if $closing || !$connection || $mine != $connection;
    undef $connection;
    say_line(event => 'disconnected', describe(@why));
    return;
}

sub connect_to {
    my ($id, $url) = @_;
    my ($user, $password, $host, $port, $rest) = $url =~ m{^amqp://([^:]+):([^@]*)@([^:/]+):(\d+)(.*)$};
    my ($heartbeat) = $rest =~ /heartbeat=(\d+)/;
    my $mine = AnyEvent::RabbitMQ->new->load_xml_spec;
    $closing = 0;
    %channels = ();
    $mine->connect(
        host => $host, port => $port, user => $user, pass => $password, vhost => '/', timeout => $CONNECTED_WITHIN_S,
        tune => {heartbeat => $heartbeat // 0},
        on_success => sub { $connection = $mine; say_line(id => $id, ok => {}) },
        on_failure => sub { say_line(id => $id, error => {describe(@_)}) },
        on_read_failure => sub { lost($mine, @_) },
        on_return => sub { returned(@_) },
        on_close => sub { lost($mine, @_) },
    );
    return;
}

sub publish {
    my ($id, $channel, $command) = @_;
    my $first = $command->{publish} // 0;
    my %header = (
        (exists $command->{headers} ? (headers => $command->{headers}) : ()),
        (exists $command->{message_id} ? (message_id => $command->{message_id}) : ()),
    );
    for my $number ($first .. $first + ($command->{count} // 1) - 1) {
        my $data = $command->{data} . (exists $command->{count} ? "-$number" : '');
        my %confirms = $channel->is_confirm
            ? (
                on_ack => sub { say_line(event => 'confirmed', publish => $number, ack => JSON::PP::true) },
                on_nack => sub { say_line(event => 'confirmed', publish => $number, ack => JSON::PP::false) },
                on_return => sub { returned(@_, data => $data, publish => $number) },
            )
            : ();
        $channel->publish(
            exchange => $command->{exchange} // '', routing_key => $command->{routing_key}, body => $data,
            mandatory => $command->{mandatory} ? 1 : 0, header => {%header}, %confirms,
        );
    }
    say_line(id => $id, ok => {});
    return;
}

sub consume {
    my ($id, $channel, $command) = @_;
    my $name = $command->{subscription};
    $channel->consume(
        queue => $command->{queue}, no_ack => $command->{no_ack} ? 1 : 0,
        on_consume => sub {
            my $came = shift;
            my $message = message($channel, $came->{deliver}->method_frame, $came->{header}, $came->{body});
            say_line(event => 'message', subscription => $name, message => $message);
        },
        on_cancel => sub {
            my $frame = shift;
            return if $frame->method_frame->isa('Net::AMQP::Protocol::Basic::CancelOk');
            say_line(event => 'ended', subscription => $name, text => 'basic.cancel');
        },
        answers($id, sub { $consumers{$name} = [$channel, $_[0]->method_frame->consumer_tag]; return {} }),
    );
    return;
}

my %on_channel = (
    declare => sub {
        my ($id, $channel, $command) = @_;
        my %asked = map { $_ => $command->{$_} ? 1 : 0 } qw(durable exclusive auto_delete);
        my $arguments = $command->{arguments} // {};
        $channel->declare_queue(
            queue => $command->{queue}, %asked, arguments => $arguments,
            answers($id, sub { return {queue => $_[0]->method_frame->queue} }),
        );
    },
    exchange => sub {
        my ($id, $channel, $command) = @_;
        my $auto_delete = $command->{auto_delete} ? 1 : 0;
        $channel->declare_exchange(exchange => $command->{exchange}, type => $command->{type}, auto_delete => $auto_delete, answers($id));
    },
    bind => sub {
        my ($id, $channel, $command) = @_;
        $channel->bind_queue((map { $_ => $command->{$_} } qw(queue exchange routing_key)), answers($id));
    },
    confirm => sub { my ($id, $channel) = @_; $channel->confirm(answers($id)) },
    publish => \&publish,
    consume => \&consume,
    get => sub {
        my ($id, $channel, $command) = @_;
        my $found = sub {
            my $came = shift;
            return {message => $came->{ok} ? message($channel, $came->{ok}->method_frame, $came->{header}, $came->{body}) : undef};
        };
        $channel->get(queue => $command->{queue}, no_ack => $command->{no_ack} ? 1 : 0, answers($id, $found));
    },
    qos => sub {
        my ($id, $channel, $command) = @_;
        my $global = $command->{global} ? 1 : 0;
        $channel->qos(prefetch_count => $command->{prefetch_count}, global => $global, answers($id));
    },
    'tx.select' => sub { my ($id, $channel) = @_; $channel->select_tx(answers($id)) },
    'tx.commit' => sub { my ($id, $channel) = @_; $channel->commit_tx(answers($id)) },
    'tx.rollback' => sub { my ($id, $channel) = @_; $channel->rollback_tx(answers($id)) },
);

my %actions = (
    connect => sub { my ($id, $command) = @_; connect_to($id, $command->{url}) },
    close => sub {
        my ($id) = @_;
        my $mine = $connection;
        $closing = 1;
        return say_line(id => $id, ok => {}) unless $mine;
        $mine->close(answers($id, sub { undef $connection; return {} }));
    },
    channel => sub {
        my ($id, $command) = @_;
        my $number = $command->{channel};
        $connection->open_channel(
            answers($id, sub { $channels{$number} = shift; return {} }),
            on_close => sub {
                return if $closing || !ref $_[0];
                say_line(event => 'channel-closed', channel => $number, describe(@_));
            },
        );
    },
    cancel => sub {
        my ($id, $command) = @_;
        my ($channel, $tag) = @{delete $consumers{$command->{subscription}}};
        $channel->cancel(consumer_tag => $tag, answers($id));
    },
    ack => sub {
        my ($id, $command) = @_;
        my ($channel, $tag) = @{$messages[$command->{ref} - 1]};
        $channel->ack(delivery_tag => $tag, multiple => $command->{multiple} ? 1 : 0);
        say_line(id => $id, ok => {});
    },
    reject => sub {
        my ($id, $command) = @_;
        my ($channel, $tag) = @{$messages[$command->{ref} - 1]};
        $channel->reject(delivery_tag => $tag, requeue => ($command->{requeue} // 1) ? 1 : 0);
        say_line(id => $id, ok => {});
    },
);

sub act {
    my ($command) = @_;
    my ($id, $do) = @{$command}{qw(id do)};
    my $channel = $channels{$command->{channel} // 0};
    eval {
        if ($actions{$do}) { $actions{$do}->($id, $command) }
        elsif (!$on_channel{$do}) { say_line(id => $id, error => {text => 'unknown command', type => 'unsupported'}) }
        elsif (!$channel) { die "there is no such channel\n" }
        else { $on_channel{$do}->($id, $channel, $command) }
        1;
    } or say_line(id => $id, error => {text => "$@", type => 'die'});
    return;
}

say_line(
    hello => 'plumbline.adapter/1', protocol => 'amqp', library => 'AnyEvent::RabbitMQ', version => "$AnyEvent::RabbitMQ::VERSION",
    language => sprintf('perl %vd', $^V), features => [split ' ', $FEATURES],
);
my $over = AnyEvent->condvar;
my $unread = '';
my $reading = AnyEvent->io(fh => \*STDIN, poll => 'r', cb => sub {
    sysread(STDIN, $unread, 1 << 20, length $unread) or return $over->send;
    act(decode_json($1)) while $unread =~ s/^([^\n]*)\n//;
});
$over->recv;
