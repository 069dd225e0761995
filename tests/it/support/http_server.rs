//! The HTTP side of the program in this process: a routing table on port 0, served on a runtime of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use cued::app::App;
use cued::http::router::Route;
use cued::http::server::{self, ListenerConfig};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::client::{Connection, Response};
use crate::support::server::HANG_TIMEOUT;

pub struct HttpServer {
    pub addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
    runtime: Runtime,
}

impl HttpServer {
    pub fn start(app: Arc<App>, table: &'static [Route]) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (connections, allowed_hosts) =
            (app.config.http.max_connections, app.config.http.allowed_hosts.clone());
        let until = async {
            if stopped.await.is_err() {
                // The test has dropped the server without a stop.
                std::future::pending().await
            }
        };
        let served = runtime.spawn(server::serve(
            ListenerConfig { listener, table, connections, allowed_hosts },
            app,
            until,
        ));
        Self { addr, stop: Some(stop), served, runtime }
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.addr).unwrap()
    }

    /// A connection from another address of this machine, which counts as another client.
    pub fn connect_from(&self, source: &str) -> Connection {
        let connect = async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::new(source.parse().unwrap(), 0)).unwrap();
            socket.connect(self.addr).await.unwrap().into_std().unwrap()
        };
        Connection::from_stream(self.runtime.block_on(connect)).unwrap()
    }

    /// One request on a connection of its own.
    pub fn request(&self, request: &str) -> Response {
        let mut connection = self.connect();
        connection.send(request);
        connection.response()
    }

    /// Runs a client that needs a runtime.
    pub fn block_on<F: Future>(&self, client: F) -> F::Output {
        let bounded = async { tokio::time::timeout(HANG_TIMEOUT, client).await };
        self.runtime.block_on(bounded).expect("the client hangs")
    }

    /// Starts a graceful stop.
    pub fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Waits for the end of a stop.
    pub fn wait_until_stopped(&mut self) {
        let served = async { tokio::time::timeout(HANG_TIMEOUT, &mut self.served).await };
        self.runtime.block_on(served).expect("the server hangs").unwrap();
    }
}
