"""Client libraries as testees: adapters in their own processes, scenarios, requirements `CLIENT-*`."""
