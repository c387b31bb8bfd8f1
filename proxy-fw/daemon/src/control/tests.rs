use super::*;
use proxy_core::control::{CONTROL_VERSION, RoleKind};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream as Blocking};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use tokio::io::duplex;
use tokio::time::sleep;

/// Longest that anything is waited for.
const BOUND: Duration = Duration::from_secs(60);

type Ends = (blocking::Receiver<Inbound>, mpsc::Sender<Said>);

fn hello() -> Hello {
    Hello {
        version: CONTROL_VERSION,
        name: "box1".try_into().unwrap(),
        role: RoleKind::Box { slots: 1 },
        incarnation: 1,
        node: None,
        paths: Default::default(),
        mtu: 1500,
        term: Term(0),
    }
}

/// A client of the manager at an address, and the data plane's ends of it.
fn client(manager: String, silence: Duration) -> (Client, Ends) {
    let (to_plane, inbound) = blocking::sync_channel(QUEUE);
    let (outbound, from_plane) = mpsc::channel(QUEUE);
    let hello = hello();
    let lookup = Lookup::new(|name| name.to_socket_addrs());
    let client = Client { manager, lookup, hello, to_plane, from_plane, connection: 0, silence };
    (client, (inbound, outbound))
}

fn bytes(message: &ToProxy) -> Vec<u8> {
    let mut buf = vec![0; MAX_MESSAGE + 4];
    encode(message, &mut buf).unwrap().to_vec()
}

/// Takes a connection and welcomes whoever says hello there.
fn welcome(listener: &TcpListener) -> Blocking {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    let mut said = Vec::new();
    loop {
        let mut some = [0; 1024];
        let length = stream.read(&mut some).unwrap();
        assert!(length > 0, "it says hello");
        said.extend_from_slice(&some[..length]);
        if let Decoded::Message(message, _) = decode::<FromProxy>(&said).unwrap() {
            assert!(matches!(message, FromProxy::Hello(_)), "{message:?}");
            break;
        }
    }
    let (version, node, term) = (CONTROL_VERSION, NodeId::new(7).unwrap(), Term(3));
    stream.write_all(&bytes(&ToProxy::Welcome(Welcome { version, node, term }))).unwrap();
    stream
}

#[test]
fn a_manager_that_welcomes_and_is_silent_is_dialled_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (client, (inbound, _outbound)) = client(address, Duration::from_millis(10));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(client.run());
    });
    let managers = std::thread::spawn(move || {
        // None of them ends its connection.
        [welcome(&listener), welcome(&listener)]
    });
    let heard = || inbound.recv_timeout(BOUND).expect("the silent one is given up");
    assert!(matches!(heard(), Inbound::Joined(_)));
    assert!(matches!(heard(), Inbound::Lost));
    assert!(matches!(heard(), Inbound::Joined(_)));
    managers.join().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_manager_is_there_as_long_as_it_pings() {
    let (mut client, _ends) = client(String::new(), SILENCE_BOUND);
    let (mut manager, stream) = duplex(1 << 20);
    let begun = Instant::now();
    let pings = async {
        for _ in 0..10 {
            sleep(SILENCE_BOUND * 9 / 10).await;
            manager.write_all(&bytes(&ToProxy::Ping)).await.unwrap();
        }
        // Part of a message is no sign of life.
        sleep(SILENCE_BOUND / 2).await;
        manager.write_all(&bytes(&ToProxy::Ping)[..1]).await.unwrap();
        std::future::pending::<()>().await;
    };
    let end = tokio::select! {
        end = client.converse(stream, Vec::new()) => end,
        () = pings => unreachable!("it goes on for ever"),
    };
    assert!(matches!(end, End::Lost(why) if why == SILENT));
    assert_eq!(Instant::now() - begun, SILENCE_BOUND * 9 + SILENCE_BOUND);
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_takes_nothing_any_more_is_gone_too() {
    let (mut client, (_inbound, outbound)) = client(String::new(), SILENCE_BOUND);
    // There is no room for a whole message.
    let (_manager, stream) = duplex(1);
    outbound.send((0, FromProxy::Hello(client.hello.clone()))).await.unwrap();
    let begun = Instant::now();
    let end = client.converse(stream, Vec::new()).await;
    assert!(matches!(end, End::Lost(why) if why == SILENT));
    assert_eq!(Instant::now() - begun, SILENCE_BOUND);
}

/// A listener that has no room for connections, to which the kernel would try for minutes.
fn crowded() -> (SocketAddr, impl Sized) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let soon = Duration::from_millis(100);
    let crowd: Vec<_> =
        std::iter::from_fn(|| Blocking::connect_timeout(&address, soon).ok()).take(16).collect();
    assert!(crowd.len() < 16, "there is room for everybody");
    (address, (listener, crowd))
}

#[tokio::test]
async fn an_address_that_does_not_answer_keeps_nobody_from_the_next() {
    let (address, _crowd) = crowded();
    let soon = Duration::from_millis(50);
    let error = connect_to_one([address].into_iter(), soon).await.unwrap_err();
    assert_eq!(error, format!("{address} does not answer"));

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let next = listener.local_addr().unwrap();
    let stream = connect_to_one([address, next].into_iter(), BOUND.min(soon * 20)).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), next);
}

/// A data plane that has no room for answers takes no requests.
#[tokio::test(start_paused = true)]
async fn what_is_said_goes_on_its_way_while_a_request_waits() {
    let (mut client, (inbound, outbound)) = client(String::new(), SILENCE_BOUND);
    let (mut manager, stream) = duplex(1 << 20);
    let (id, term) = (OperationId(1), Term(1));
    let body = Request::ReadTable { from: 0 };
    let ask = bytes(&ToProxy::Request { id, term, body });
    for _ in 0..=QUEUE {
        manager.write_all(&ask).await.unwrap();
    }
    let take = async {
        // The queue is full, and one more waits.
        sleep(Duration::from_millis(100)).await;
        let hello = FromProxy::Hello(hello());
        for _ in 0..QUEUE {
            outbound.send((0, hello.clone())).await.unwrap();
        }
        let mut said = Vec::new();
        for _ in 0..QUEUE {
            while let Decoded::Incomplete = decode::<FromProxy>(&said).unwrap() {
                manager.read_buf(&mut said).await.unwrap();
            }
            let Decoded::Message(_, used) = decode::<FromProxy>(&said).unwrap() else {
                unreachable!()
            };
            said.drain(..used);
        }
        // All of them were asked, once there was room.
        for _ in 0..=QUEUE {
            sleep(Duration::from_millis(2)).await;
            inbound.try_recv().unwrap();
        }
    };
    tokio::select! {
        _ = client.converse(stream, Vec::new()) => unreachable!("it goes on"),
        () = take => {}
    }
}

/// What it says while there is no manager keeps it from nothing.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_connection_is_told_though_both_queues_are_full() {
    let (mut client, (inbound, outbound)) = client(String::new(), SILENCE_BOUND);
    let (id, term, body) = (OperationId(1), Term(1), Request::ReadTable { from: 0 });
    for _ in 0..QUEUE {
        let request = Inbound::Request { id, term, body: body.clone() };
        client.to_plane.try_send(request).unwrap();
        outbound.try_send((0, FromProxy::Pong)).unwrap();
    }
    let take = async {
        while outbound.capacity() == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        inbound.try_recv().unwrap();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        told = client.hand_over(Inbound::Lost, None::<&mut TcpStream>) => assert!(told.is_ok()),
        () = take => {}
    }
}

/// Each look is a thread, which stays as long as the resolver does.
#[tokio::test]
async fn a_name_is_looked_up_once_at_a_time() {
    static LOOKS: AtomicU32 = AtomicU32::new(0);
    static END: Barrier = Barrier::new(2);
    let mut lookup = Lookup::new(|_| {
        if LOOKS.fetch_add(1, Relaxed) == 0 {
            END.wait();
        }
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], 7781))].into_iter())
    });
    for _ in 0..3 {
        let looked = timeout(Duration::from_millis(10), lookup.addresses("manager:7781")).await;
        assert!(looked.is_err(), "it hangs");
    }
    END.wait();
    let found = timeout(BOUND, lookup.addresses("manager:7781")).await.unwrap().unwrap();
    assert_eq!((found.count(), LOOKS.load(Relaxed)), (1, 1));
    // It may have moved since.
    assert!(timeout(BOUND, lookup.addresses("manager:7781")).await.unwrap().is_ok());
    assert_eq!(LOOKS.load(Relaxed), 2);
}

/// What one look waits for may never come, though who knows names is well again.
#[tokio::test(start_paused = true)]
async fn looks_that_hang_are_few_and_keep_no_other_from_its_answer() {
    static WELL: AtomicBool = AtomicBool::new(false);
    let mut lookup = Lookup::new(|_| {
        while !WELL.load(Relaxed) {
            std::thread::park();
        }
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], 7781))].into_iter())
    });
    let mut looks = Vec::new();
    for _ in 0..30 {
        assert!(
            timeout(CONNECT_BOUND, lookup.addresses("manager:7781")).await.is_err(),
            "it hangs"
        );
        looks.push(lookup.under_way.len());
        tokio::time::advance(LOOK_AGAIN / 2).await;
    }
    assert_eq!((looks[0], looks[1], looks[2]), (1, 1, 2));
    assert_eq!(looks.last(), Some(&LOOKS), "it is the limit");
    // The next one would have its answer at once.
    WELL.store(true, Relaxed);
    lookup.under_way.pop();
    let found = loop {
        if let Ok(found) = timeout(LOOK_AGAIN, lookup.addresses("manager:7781")).await {
            break found;
        }
    };
    assert_eq!((found.unwrap().count(), lookup.under_way.len()), (1, LOOKS - 1));
    // Nor does one have to wait for its time that comes after a look that ended.
    let next = lookup.addresses("manager:7781");
    assert!(timeout(CONNECT_BOUND, next).await.is_ok() || lookup.under_way.len() == LOOKS);
}
