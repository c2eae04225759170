use std::sync::Arc;

use mockforge_amqp::{AmqpBroker, AmqpSpecRegistry};
use mockforge_core::config::AmqpConfig;

#[tokio::main]
async fn main() -> mockforge_core::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).expect("the port to listen on");
    let config = AmqpConfig { enabled: true, host: "127.0.0.1".into(), port, ..Default::default() };
    let registry = AmqpSpecRegistry::new(config.clone()).await?;
    AmqpBroker::new(config, Arc::new(registry)).start().await
}
