<?php

// An adapter for plumbline gate: replace what says "my library". For each command of the adapter protocol that the library
// supports, add a case of act() and its feature. say() writes events, too.

declare(strict_types=1);

const PROTOCOL = 'PROTOCOL';
const FEATURES = [];

function say(array $line): void
{
    fwrite(STDOUT, json_encode($line, JSON_THROW_ON_ERROR) . "\n");
    fflush(STDOUT);
}

final class Unsupported extends Exception
{
}

/** The fields of "ok"; throws what the library throws. */
function act(array $command): array
{
    switch ($command['do']) {
        case 'connect': // my library connects to $command['url']
        case 'close':
            return [];
    }
    throw new Unsupported('unknown command');
}

function answer(array $command): array
{
    try {
        return ['ok' => (object) act($command)];
    } catch (Unsupported $error) {
        return ['error' => ['text' => $error->getMessage(), 'type' => 'unsupported']];
    } catch (Throwable $error) {
        return ['error' => ['text' => $error->getMessage(), 'type' => get_class($error)]];
    }
}

say([
    'hello' => 'plumbline.adapter/1', 'protocol' => PROTOCOL, 'library' => 'my library', 'version' => '0',
    'language' => 'php ' . PHP_VERSION, 'features' => FEATURES,
]);
while (($line = fgets(STDIN)) !== false) {
    $command = json_decode($line, true, 512, JSON_THROW_ON_ERROR);
    say(['id' => $command['id']] + answer($command));
}
