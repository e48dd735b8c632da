"""Runs one block in Python: the child's side of the kind `python`. See process.rs for the host's side."""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import importlib.util
import inspect
import json
import linecache
import logging
import mmap
import operator
import os
import pathlib
import resource
import signal
import socket
import struct
import sys
import traceback
import types
import typing
from dataclasses import MISSING, asdict, fields, is_dataclass, make_dataclass

import numpy as np

from fxgraph.block import DROP, Band, Block, Frame, Port, Range, live
from fxgraph_gpu import PLACE_BYTES, Gpu, GpuFault

# Kind, unused, slot of the input, slot of the output, flags; number of the job, timestamp, sequence, config_id. On a GPU,
# a handle and an offset follow for each new slot.
JOB = struct.Struct("<BBHHHQQQQ")
# Kind, unused, whether there is no frame, unused; number of the job, timestamp.
DONE = struct.Struct("<BBHIQQ")
NEW_INPUT, NEW_OUTPUT = 1, 2
MESSAGE_BYTES, REPLY_BYTES = 1 << 16, 48 << 10
MAX_TIMESTAMP = 1 << 62
FILES_BYTES = socket.CMSG_LEN(2 * struct.calcsize("i"))  # of two descriptors
F_SETSIG = 10


class Refused(Exception):
    """An error for the user in one line; the traceback is that of its cause, if any."""

    def __init__(self, message, parameter=None):
        super().__init__(message)
        self.parameter = parameter


def shortened(text, most, from_end=False):
    """The first or last `most` bytes of `text` in UTF-8, which are at most twice as many in a message."""
    text = "".join(c if c >= " " or c in "\n\t" else "\ufffd" for c in (text[-most:] if from_end else text[:most]))
    data = text.encode("utf-8", "replace")
    return (data[-most:] if from_end else data[:most]).decode("utf-8", "ignore")


def type_name(hint):
    """The type `hint` in words, as the host shows it."""
    return getattr(hint, "__name__", None) if isinstance(hint, type) else str(hint).replace("typing.", "")


def parts(hint):
    """Type, range and liveness in the annotation `hint`."""
    extras = getattr(hint, "__metadata__", ())
    kind = hint.__origin__ if extras else hint
    return kind, next((e for e in extras if isinstance(e, Range)), Range()), live in extras


def parameters(cls):
    """Name, type, range, default and liveness of each field."""
    hints, found = typing.get_type_hints(cls, include_extras=True), []
    for field in fields(cls):
        if not field.init:
            continue
        kind, limits, is_live = parts(hints[field.name])
        has_default = field.default is not MISSING or field.default_factory is not MISSING
        default = field.default if field.default is not MISSING else None
        try:
            json.dumps(default)
        except (TypeError, ValueError):
            default = repr(default)
        found.append({"name": field.name, "type": type_name(kind), "default": default, "required": not has_default,
                      "least": limits.least if np.isfinite(limits.least) else None,
                      "greatest": limits.greatest if np.isfinite(limits.greatest) else None, "live": is_live})
    return found


def fitted(kind, limits, value, place):
    """`value` as the type `kind` within `limits`; `place` names it."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is typing.Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        problem = None
        for one in arguments:
            if one is not type(None):
                try:
                    return fitted(one, limits, value, place)
                except Refused as error:
                    problem = error
        raise problem
    if origin is typing.Literal:
        if value not in arguments:
            raise Refused(f"`{place}` must be one of {', '.join(map(repr, arguments))}, got {value!r:.60}")
        return value
    if (origin or kind) in (list, tuple) and isinstance(value, list):
        inner = arguments[0] if arguments else typing.Any
        return (origin or kind)(fitted(inner, limits, each, f"{place}[{n}]") for n, each in enumerate(value))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(kind, type) or type(value) is not kind:
        raise Refused(f"`{place}` must be {type_name(kind)}, got {value!r:.60}")
    if kind in (int, float) and not limits.least <= value <= limits.greatest:
        if np.isfinite(limits.least) and np.isfinite(limits.greatest):
            rule = f"between {limits.least:g} and {limits.greatest:g}"
        else:
            rule = f"at least {limits.least:g}" if np.isfinite(limits.least) else f"at most {limits.greatest:g}"
        raise Refused(f"`{place}` must be {rule}, got {value:g}")
    return value


def checked(cls, values):
    """`values` as the types of the fields, within their ranges."""
    hints, out = typing.get_type_hints(cls, include_extras=True), {}
    known = [field.name for field in fields(cls) if field.init]
    for name, value in values.items():
        if name not in known:
            has = f"it has `{'`, `'.join(known)}`" if known else "it has none"
            raise Refused(f"`{cls.__name__}` has no parameter `{name}`; {has}", name)
        kind, limits, _ = parts(hints[name])
        try:
            out[name] = fitted(kind, limits, value, name)
        except Refused as error:
            raise Refused(str(error), name) from None
    return out


class Source:
    """The text of the block, and the names that errors give it."""

    def __init__(self, name, directory, text):
        self.name, self.directory, self.text = name, directory, text

    def module(self):
        """Runs the text as a module."""
        if self.directory is not None:
            sys.path.insert(0, self.directory)  # files beside it can be imported, as for a script
        stem = pathlib.PurePath(self.name).stem
        module = types.ModuleType(stem if stem.isidentifier() and stem not in sys.modules else "fxgraph_user_block")
        module.__file__ = self.name
        sys.modules[module.__name__] = module
        # Tracebacks quote these lines, not those of a file that may have been edited since.
        linecache.cache[self.name] = (len(self.text), None, self.text.splitlines(True), self.name)
        exec(compile(self.text, self.name, "exec"), vars(module))
        return module

    def load_function(self, name, declared):
        """Runs the text as a module; returns a block that calls its function `name` with the frames and itself: its
        attributes are the parameters, buffers and counters of the declaration."""
        function = vars(self.module()).get(name)
        if not inspect.isfunction(function):
            raise Refused(f"`{self.name}` has no function `{name}`", "class")
        if len(inspect.signature(function).parameters) != 3:
            raise Refused(f"`{name}` of `{self.name}` must be `{name}(frame, out, fx)`", "class")
        output, types = port_of(declared["output"]), {"bool": bool, "int": int, "float": float}

        def start(self, inputs, _):
            self._next = None
            for buffer, (dtype, length) in declared["buffers"].items():
                port = Port(dtype, (("value", length),), 1, 1.0)
                setattr(self, buffer, np.zeros(port.array[1], port.array[0]))

        def work(self, frame, out):
            self.is_continuous, self._next = frame.timestamp == self._next, frame.timestamp + frame.port.samples_per_frame
            vars(self).update(dict.fromkeys(declared["counters"], 0))
            result = function(frame, out, self)
            if result is not None:
                raise Refused(f"`{name}` must return None, got {type(result).__name__}: fill `out.data` in place")
            if declared["validity"] == "whole" and not (frame.validity == frame.port.full).all():
                out.data[...] = 0

        def field(key, hint):
            return key, typing.Annotated[types[hint], live] if key in declared["live"] else types[hint]

        body = {"ports": lambda self, inputs: output, "start": start, "work": work, "counters": declared["counters"],
                "_validity_rule": declared["validity"]}
        return make_dataclass(name, [field(*pair) for pair in declared["parameters"]], bases=(Block,), namespace=body)

    def load(self, class_name):
        """Runs the text as a module; returns its class `class_name`."""
        module = self.module()
        found = vars(module).get(class_name)
        is_block = lambda each: isinstance(each, type) and issubclass(each, Block) and each is not Block
        if not is_block(found):
            names = [name for name, each in vars(module).items() if is_block(each)]
            has = f"it has `{'`, `'.join(names)}`" if names else "it has no class that derives from `fxgraph.block.Block`"
            if found is None:
                raise Refused(f"`{self.name}` has no class `{class_name}`; {has}", "class")
            raise Refused(f"`{class_name}` of `{self.name}` must derive from `fxgraph.block.Block`", "class")
        if not is_dataclass(found) or "__dataclass_fields__" not in vars(found):
            raise Refused(f"`{class_name}` of `{self.name}` must be a dataclass: write `@dataclass` above it", "class")
        if not callable(getattr(found, "work", None)):
            raise Refused(f"`{class_name}` of `{self.name}` needs a method `work(self, frame, out)`", "class")
        return found

    def imported(self):
        """Path, time of change and size of the files beside the block that it has imported."""
        if self.directory is None:
            return []
        paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        is_own = lambda path: path.startswith(self.directory + os.sep) and "-packages" + os.sep not in path
        paths = sorted(path for path in paths if path and path != self.name and is_own(path))
        stats = ((path, os.stat(path)) for path in paths[:100] if os.path.exists(path))
        return [[path, stat.st_mtime_ns, stat.st_size] for path, stat in stats]

    def describe(self, error):
        """The error for the host: one line, the place, and the traceback without lines of this runner."""
        cause = error.__cause__ if isinstance(error, Refused) and error.__cause__ else error
        known = [f for f in traceback.extract_tb(cause.__traceback__)
                 if not f.filename.startswith("<fxgraph") and not f.filename.startswith("<frozen")]
        lines = traceback.format_list(known)
        if not isinstance(cause, (Refused, GpuFault)):
            lines += traceback.format_exception_only(type(cause), cause)
        text = str(error) if isinstance(error, (Refused, GpuFault)) else f"{type(error).__name__}: {error}"
        if isinstance(cause, SystemExit):
            text += ": a block must not call `sys.exit`: raise an exception, or return DROP to hand on no frame"
        own = [f.lineno for f in known if f.filename == self.name]
        line = own[-1] if own else None
        if isinstance(cause, SyntaxError) and cause.filename == self.name:
            line, text = cause.lineno, f"{type(cause).__name__}: {cause.msg}"
        return {"message": shortened(text, 2000), "line": line,
                "traceback": shortened("".join(lines), 16000, from_end=True).rstrip(),
                "parameter": getattr(error, "parameter", None)}


class Channel:
    """The socket to the host: one message per packet, in order; its end means that the host is gone."""

    def __init__(self, sock):
        self.sock, self.fds = sock, []

    def receive(self, flags=0):
        """A job, or a message, with at most two descriptors, which are kept in `self.fds`."""
        # As `socket.recv_fds`, which takes several times as long.
        data, files, _, _ = self.sock.recvmsg(MESSAGE_BYTES, FILES_BYTES, flags)
        self.fds = [fd for _, _, data_of in files for (fd,) in struct.iter_unpack("i", data_of)] if files else []
        if len(data) >= JOB.size and data[0] == 70:
            return data
        message = json.loads(data) if data else {"stop": True}
        if "long" in message:  # too long for a packet: in memory of its own
            with os.fdopen(self.fds.pop(), "rb") as file:
                message = json.loads(file.read(message["long"]))
        return message

    def send(self, message):
        data = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
        if len(data) > REPLY_BYTES:
            message = f"the description of the block has {len(data)} bytes, the limit is {REPLY_BYTES}"
            data = json.dumps({"error": {"where": "start", "ended": True, "message": message, "line": None,
                                         "traceback": "", "parameter": None}}).encode()
        self.sock.send(data)


def mapped(fd, writable):
    """The memory of the descriptor `fd`, which is closed, as bytes."""
    prot = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
    size = os.fstat(fd).st_size
    memory = mmap.mmap(fd, size, mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0), prot)
    os.close(fd)
    return np.frombuffer(memory, "u1")


def set_up(start, life):
    """Limits and signals of a child that must neither outlive nor outgrow its host."""
    # The kernel kills this process group when the host's end of the pipe is gone, also inside C code.
    fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(life, F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    if os.getppid() != start["host"]:
        os._exit(3)  # it died before the line above
    if start["memory_limit_bytes"]:
        # Private memory; RLIMIT_AS would count the frames, too.
        resource.setrlimit(resource.RLIMIT_DATA, (start["memory_limit_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        pathlib.Path("/proc/self/oom_score_adj").write_text("500")  # the kernel takes this process first, not the host
    except OSError:
        pass
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # the host asks where a hung block is
    levels = {10: 7, 20: 6, 30: 4, 40: 3, 50: 2}  # a log record is a line that begins with its syslog level
    handler = logging.StreamHandler(sys.stderr)
    handler.format = lambda r: f"<{levels.get(r.levelno, 6)}>{r.name}: {r.getMessage()}"
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class Server:
    """Calls `work` for the jobs of the host."""

    def __init__(self, block, channel, source, inputs, output):
        self.block, self.channel, self.source = block, channel, source
        self.input, self.output = inputs[0], output
        self.takes_out = len(inspect.signature(block.work).parameters) == 2
        if output is None and self.takes_out:
            raise Refused("`work` must be `work(self, frame)`, because `ports` returns None: there is no output")
        rule = getattr(block, "_validity_rule", None)  # that of a declaration; None for a class
        self.copies_validity, self.lends_validity = rule in (None, "same"), rule in (None, "units")
        self.read, self.written = {}, {}
        self.gpu, self.places = None, b""  # the GPU; handles and offsets of new slots
        self.is_mapped = True  # whether the slots are those that the host knows
        self.last = (0, 0)  # timestamps of the last input and output

    def memory(self, message, fd):
        """Maps the validity of each job: that of the input, that of the output, the counters, and the validity of the
        output as the block gets it."""
        base = self.base = mapped(fd, True)
        self.validity, stride = [], message["stride"]
        for job in range(message["jobs"]):
            start, pair = job * stride, []
            for port in (self.input, self.output):
                units = port.units if port else 0
                counts = base[start:start + 4 * units].view("<u4")
                pair.append(counts.reshape([n for _, n in port.validity] if port else [0]))
                start += 4 * units
            start += -start % 8
            pair.append(base[start:start + 8 * message["counters"]].view("<u8"))
            pair[0] = pair[0].view()
            pair[0].flags.writeable = False
            pair.append(pair[1] if self.lends_validity else pair[1].view())
            pair[3].flags.writeable = self.lends_validity
            self.validity.append(pair)
        if message["probe"] is not None:
            self.gpu = Gpu(message["jobs"], bytes(message["probe"]))

    def frame(self, table, slot, is_new, port, writable):
        if is_new:
            table[slot] = None  # unmaps the memory that had this slot before
            if self.gpu:
                place, self.places = self.places[:PLACE_BYTES], self.places[PLACE_BYTES:]
                base = self.gpu.array((writable, slot), place, port)
            else:
                base = mapped(self.channel.fds.pop(0), writable)
            frame = Frame(port, base, self.validity[0][0])
            frame._validity = None
            table[slot] = (frame, frame.data)
        return table[slot]

    def filled(self, frame, out):
        """Calls `work`; whether there is a frame to hand on."""
        if self.takes_out:
            result = self.block.work(frame, out)
            if result is not None and result is not DROP:
                kind = type(result).__name__
                raise Refused(f"`work(self, frame, out)` must return None or DROP, got {kind}: fill `out.data` in place")
            return result is not DROP
        result = self.block.work(frame)
        if result is None or result is DROP or out is None:
            return False
        if self.gpu:
            wanted = self.gpu.fill(out.data, result)
            if wanted:
                raise Refused(f"`work` must return {wanted}")
            return True
        result = np.asarray(result)
        dtype, shape = out.port.array
        if result.shape != shape:
            raise Refused(f"`work` must return the shape {shape} of {out.port}, got {result.shape}")
        if not np.can_cast(result.dtype, dtype, "same_kind"):
            raise Refused(f"`work` must return {dtype}, got {result.dtype}: use `astype`")
        out.data[...] = result
        return True

    def job(self, input_slot, output_slot, flags, number, timestamp, sequence, config_id):
        self.is_mapped, out = False, None
        frame, data = self.frame(self.read, input_slot, flags & NEW_INPUT, self.input, False)
        if self.output is not None:
            out, out_data = self.frame(self.written, output_slot, flags & NEW_OUTPUT, self.output, True)
        self.is_mapped = True
        counts = self.validity[number % len(self.validity)]
        frame.timestamp, frame.sequence, frame.config_id = timestamp, sequence, config_id
        frame._data, frame._validity = data, counts[0]
        if out is not None:
            out.timestamp, out.sequence, out.config_id = timestamp, sequence, config_id
            out._data, out._validity = out_data, counts[3]
            is_alike = counts[0].shape == counts[1].shape and self.input.full == self.output.full
            if self.copies_validity and is_alike:
                counts[1][...] = counts[0]
            else:
                # A frame with missing parts and other units: valid if all of it is complete.
                counts[1][...] = self.output.full if (counts[0] == self.input.full).all() else 0
        held = self.references(frame, out, counts)
        dropped = not self.filled(frame, out)
        for n, name in enumerate(getattr(self.block, "counters", ()) if counts[2].size else ()):
            counts[2][n] = self.added(name)
        if self.references(frame, out, counts) != held:
            gc.collect()
            if self.references(frame, out, counts) != held:
                raise Refused("`work` kept a frame or a view of its data, whose memory is used again: keep a copy, "
                              "`frame.data.copy()`")
        if out is None or dropped:
            return dropped, timestamp
        return dropped, self.timestamp_of(out, timestamp)

    def added(self, name):
        """The number that the block has added to its counter `name`."""
        added = getattr(self.block, name)
        if isinstance(added, (bool, float)) or not hasattr(added, "__index__") or not 0 <= added < 1 << 64:
            raise Refused(f"the sum of the counter `{name}` must be an integer that is not negative, got {added!r:.60}")
        return operator.index(added)

    def timestamp_of(self, out, of_input):
        """The timestamp of the output, which must not go back unless that of the input does."""
        try:
            if isinstance(out.timestamp, (bool, np.bool_)):
                raise TypeError
            timestamp = operator.index(out.timestamp)
        except TypeError:
            kind = type(out.timestamp).__name__
            raise Refused(f"`out.timestamp` must be an integer, got {out.timestamp!r:.60} ({kind}): "
                          "divide with `//`, and convert with `int`") from None
        if not 0 <= timestamp <= MAX_TIMESTAMP:
            raise Refused(f"`out.timestamp` must be between 0 and 2^62, got {timestamp}")
        last_input, last = self.last
        if timestamp < last and of_input >= last_input:
            raise Refused(f"`out.timestamp` must not go back, got {timestamp} after {last}")
        self.last = (of_input, timestamp)
        return timestamp

    def references(self, frame, out, counts):
        """Numbers that grow if someone keeps a frame, its arrays or a view of them."""
        found = [*map(sys.getrefcount, (self.base, frame, frame._base, frame.data, counts[0]))]
        if out is not None:
            found += map(sys.getrefcount, (out, out._base, out.data, counts[3]))
        return found

    def update(self, values):
        values = checked(type(self.block), values)
        changed = {name for name, value in values.items() if getattr(self.block, name, MISSING) != value}
        vars(self.block).update(values)
        self.block.updated(changed)

    def answer(self):
        """Answers the oldest frame once the GPU has finished it."""
        self.channel.sock.send(self.gpu.finished())

    def received(self):
        """The next packet. Until it comes, frames that the GPU finishes are answered."""
        while self.gpu and self.gpu.queued:
            if self.gpu.has_finished():
                self.answer()
                continue
            if len(self.gpu.queued) < len(self.validity):
                try:
                    return self.channel.receive(socket.MSG_DONTWAIT)
                except BlockingIOError:
                    pass
            self.answer()
        return self.channel.receive()

    def is_settled(self):
        """Waits until the GPU has finished everything, and answers its frames; whether it still works."""
        if self.gpu:
            try:
                while self.gpu.queued:
                    self.answer()
                self.gpu.synchronise()
            except GpuFault:
                return False
        return True

    def serve(self):
        """Serves the host until it says stop."""
        while True:
            packet = self.received()
            is_job = type(packet) is bytes
            try:
                if is_job:
                    _, _, *job = JOB.unpack_from(packet)
                    self.places = packet[JOB.size:]
                    dropped, timestamp = self.job(*job)
                elif "set" in packet:
                    self.update(packet["set"])
                elif "stop" in packet:
                    return
            except (Exception, SystemExit) as error:  # the host decides with `on_fault` whether the block goes on
                where, ended = "work" if is_job else "updated", not self.is_settled() or not self.is_mapped
                self.channel.send({"error": {"where": where, "ended": ended, **self.source.describe(error)}})
                if ended:
                    sys.stderr.flush()
                    os._exit(1)
            else:
                if is_job:
                    answer = DONE.pack(68, 0, dropped, 0, job[3], timestamp)
                    if self.gpu:
                        self.gpu.queue(job[3] % len(self.validity), answer)
                    else:
                        self.channel.sock.send(answer)


def port_of(d):
    pairs = {key: tuple((str(name), int(length)) for name, length in d[key]) for key in ("axes", "validity")}
    return Port(**{**d, **pairs, "band": Band(**d["band"]) if d["band"] else None})


def main(sock):
    channel, where, source = Channel(sock), "start", Source("", None, "")
    try:
        start = channel.receive()["start"]
        source = Source(start["name"], start["directory"], start["text"])
        set_up(start, channel.fds[0])
        where = "import"
        declared = start["function"]
        cls = source.load_function(start["class"], declared) if declared else source.load(start["class"])
        where = "parameters"
        described = parameters(cls)
        values = checked(cls, start["values"])
        missing = [p["name"] for p in described if p["required"] and p["name"] not in values]
        if missing:
            raise Refused(f"`{cls.__name__}` needs the parameter `{'`, `'.join(missing)}`", "")
        block = cls(**values)
        where = "ports"
        inputs = tuple(map(port_of, start["inputs"]))
        output = block.ports(inputs)
        if output is not None and not isinstance(output, Port):
            raise Refused(f"`ports` must return a Port or None, got {type(output).__name__}")
        server = Server(block, channel, source, inputs, output)
        hello = {"doc": (inspect.getdoc(cls) or "")[:4000], "parameters": described, "files": source.imported(),
                 "python": sys.version.split()[0], "numpy": np.__version__,
                 "output": None if output is None else {**asdict(output), "units": output.units, "bytes": output.nbytes}}
        channel.send({"hello": hello})
        message = channel.receive()
        if "memory" not in message:
            return
        server.memory(message["memory"], channel.fds[0])
        where = "start"
        block.start(inputs, output)
        channel.send({"ready": True})
        where = "work"
        server.serve()
        where = "finish"
        block.finish()
        channel.send({"bye": True})
    except (BrokenPipeError, ConnectionResetError):
        pass  # the host is gone
    except BaseException as error:
        try:
            channel.send({"error": {"where": where, "ended": True, **source.describe(error)}})
        except OSError:
            pass
        sys.stderr.flush()
        os._exit(1)
