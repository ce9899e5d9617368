"""relay.py - connections of a job that can be cut one way or both: between ranks and the server, between two ranks.

Ranks connect to the relay instead of the server. They prove who they are there (docs/protocol.md, the handshake), so a
cut can be of one rank. In what a source says of itself (HELLO) its address is replaced by that of another relay, so
that its readers come there. A cut direction carries nothing until it is healed; nothing is lost, as with TCP.
"Out" is what comes from who connected: from a rank to the server, from a reader to its source.
"""
import itertools
import os
import socket
import threading

from frames import framed, split

DESCRIPTORS_MAX = 16  # in one message between processes of a host
SIDES = ("train", "infer")
numbers = itertools.count()


class Cuts:
    """What carries nothing now: (who, "in" or "out"); who is a rank, or None for all of them."""

    def __init__(self):
        self.changed = threading.Condition()
        self.cuts = set()
        self.closed = False

    def set(self, who, directions):
        with self.changed:
            self.cuts = {(who, direction) for direction in directions}
            self.changed.notify_all()

    def close(self):
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def wait(self, who, direction):
        """`who`: a list of one, which may become known meanwhile."""
        with self.changed:
            self.changed.wait_for(lambda: self.closed or not self.is_cut(who[0], direction))

    def is_cut(self, who, direction):
        return (who, direction) in self.cuts or (who != "observer" and (None, direction) in self.cuts)


class ServerCuts(Cuts):
    """Who has not said who it is yet counts as cut off: while a cut lasts only its victim connects again."""

    def is_cut(self, who, direction):
        return any(cut == direction for _, cut in self.cuts) if who is None else super().is_cut(who, direction)


class Relay:
    """Listens for whoever would connect to `target`, a function that gives a connected socket. `hellos(who, fields)`
    may change what a rank tells the server of itself; without it, nothing is looked at once the rank is known."""

    def __init__(self, frames, listener, target, cuts, hellos=None):
        self.frames, self.listener, self.target, self.cuts, self.hellos = frames, listener, target, cuts, hellos
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(near,), daemon=True).start()

    def serve(self, near):
        try:
            far = self.target()
        except OSError:
            near.close()
            return
        who = [None]
        back = threading.Thread(target=self.pump, args=(far, near, who, "in"), daemon=True)
        back.start()
        self.pump(near, far, who, "out")
        back.join()
        near.close()
        far.close()

    def pump(self, source, target, who, direction):
        rest = b"" if direction == "out" else None  # None: nothing is looked at any more
        while True:
            try:
                data, descriptors = receive(source)
            except OSError:
                data, descriptors = b"", []
            ended = not data
            if rest is not None:
                data, rest = self.look(rest + data, who)
            self.cuts.wait(who, direction)
            try:
                if data:
                    send(target, data, descriptors)
                if ended:
                    target.shutdown(socket.SHUT_WR)
            except OSError:
                return
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            if ended:
                return

    def look(self, data, who):
        """(whole frames to pass on, the rest) of what somebody says first; the rest is None when nothing more is wanted."""
        passed = b""
        payloads, rest = split(data)
        while payloads:
            payload = payloads.pop(0)
            name, fields = self.frames.read(payload)
            if name == "prove":
                who[0] = "observer" if fields["role"] == 1 else f"{SIDES[fields['side']]}:{fields['rank']}"
            if name == "hello" and self.hellos is not None:
                payload = self.frames.write(name, self.hellos(who[0], fields))
            passed += framed(payload)
            if name == ("prove" if self.hellos is None else "hello"):
                return passed + b"".join(map(framed, payloads)) + rest, None
        return passed, rest

    def close(self):
        self.cuts.close()
        self.listener.close()


def receive(source):
    """(bytes, descriptors that came along)"""
    if source.family != socket.AF_UNIX:
        return source.recv(65536), []
    data, descriptors, _, _ = socket.recv_fds(source, 65536, DESCRIPTORS_MAX)
    return data, descriptors


def send(target, data, descriptors):
    if descriptors:
        data = data[socket.send_fds(target, [data], descriptors):]
    target.sendall(data)


def connect_unix(name):
    far = socket.socket(socket.AF_UNIX)
    try:
        far.connect(name)
    except OSError:
        far.close()
        raise
    return far


class JobRelay:
    """Between all ranks and the server, and, where `source` names a rank, between it and its readers."""

    def __init__(self, frames, server_port, source=None):
        self.frames, self.source = frames, source
        self.server, self.peers = ServerCuts(), Cuts()
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.relays = [Relay(frames, listener, lambda: socket.create_connection(("127.0.0.1", server_port)), self.server,
                             self.tell_of_itself)]

    def tell_of_itself(self, who, fields):
        """HELLO: readers of `source` are sent to a relay of its own; this host's processes meet at unix addresses."""
        unix = next((address for address in fields["address"].split(" ") if address.startswith("unix:@")), None)
        if who != self.source or unix is None:
            return fields
        own = f"weft-relay-{os.getpid()}-{next(numbers)}"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("\0" + own)
        listener.listen(64)
        name = "\0" + unix.removeprefix("unix:@")
        self.relays.append(Relay(self.frames, listener, lambda: connect_unix(name), self.peers))
        return dict(fields, address=f"unix:@{own}")

    def close(self):
        for relay in self.relays:
            relay.close()
