use std::sync::Arc;

use proxima_amqp::{AmqpBroker, AmqpPipeReply, AmqpPipeRequest, AmqpServerConfig, into_amqp_handle, serve_connection};
use proxima_core::ProximaError;
use proxima_listen::admission::ConnAdmission;
use proxima_primitives::pipe::{SendPipe, request::Response};
use tokio_util::compat::TokioAsyncReadCompatExt;

struct RouteEveryMessage;

impl SendPipe for RouteEveryMessage {
    type In = AmqpPipeRequest;
    type Out = AmqpPipeReply;
    type Err = ProximaError;

    async fn call(&self, _: AmqpPipeRequest) -> Result<AmqpPipeReply, ProximaError> {
        Ok(Response::typed(200, ()))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).expect("the address to listen on");
    let listener = tokio::net::TcpListener::bind(address).await?;
    let broker = Arc::new(AmqpBroker::new());
    let handler = into_amqp_handle(RouteEveryMessage);
    loop {
        let (stream, _) = listener.accept().await?;
        let (handler, broker) = (handler.clone(), broker.clone());
        tokio::spawn(async move {
            let (_shutdown, until_shutdown) = futures::channel::oneshot::channel();
            let (config, admission) = (AmqpServerConfig::default(), ConnAdmission::unbounded());
            let served = serve_connection(stream.compat(), handler, broker, &config, until_shutdown, admission);
            if let Err(error) = served.await {
                eprintln!("{error}");
            }
        });
    }
}
