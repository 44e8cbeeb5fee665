package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/heftai/heft/api/batches"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/logbuffer"
	"github.com/heftai/heft/text"
)

const (
	// logBytes is the maximum size of the log that waits for its reader.
	logBytes = 1 << 20
	// logWait is how long the server waits for the reader of the log before it exits.
	logWait = time.Second
)

// runCmd is serve without a command.
type runCmd struct {
	servedFlags
	placeFlags
	sizeFlags
	adapterFlags
	loraDirFlags
	accessFlags
	storeFlags
	kvStoreFlags
	operateFlags
	draftFlags
	ServedModelName string        `help:"Show this name in /v1/models (default: the folder's name)." placeholder:"S"`
	Host            string        `help:"Listen on this address (default ${default})." default:"127.0.0.1" placeholder:"A"`
	Port            int           `help:"Listen on this port; 0 chooses a free one (default ${default})." default:"8000" placeholder:"N"`
	MaxQueue        int           `help:"Queue at most N requests; reject more with 503 (default ${default})." default:"1024" placeholder:"N"`
	ShutdownTimeout time.Duration `help:"Wait this long for running requests after SIGTERM (default ${default})." default:"30s" placeholder:"D"`
	ClientTimeout   time.Duration `help:"Disconnect clients that make no progress for this long; 0s never does (default ${default})." default:"60s" placeholder:"D"`
	ToolCallParser  string        `help:"Parse tool calls in this notation (default: the chat template's)." placeholder:"NAME"`
	ReasoningParser string        `help:"Parse reasoning in this notation; none disables it (default: the template's)." placeholder:"NAME|none"`
	Lazy            bool          `help:"Read weights only when a request needs them."`
	LogLevel        string        `help:"Log at this level and above (default ${default})." enum:"debug,info,warn,error" default:"info" placeholder:"debug|info|warn|error"`

	lines   *logbuffer.Buffer // the log on its way to standard error
	view    *loadView
	backend func(batches.Backend) // if not nil, called with the backend that answers batches
	lost    chan error            // receives why the server ends, if a GPU was lost
	offline bool                  // no client waits: only the throughput of all requests matters
}

// Run makes the model ready without loading it, listens, serves, and drains on SIGTERM or SIGINT.
// It opens the port only after checking the flags, config, headers and tokenizer.
func (c *runCmd) Run(ctx context.Context, k *kong.Context) error {
	if err := errors.Join(c.check(), c.log()); err != nil {
		return err
	}
	return c.flush(c.run(ctx, k))
}

func (c *runCmd) run(ctx context.Context, k *kong.Context) error {
	if err := c.operateFlags.open(); err != nil {
		return err
	}
	w, err := c.find(ctx, k)
	if err != nil {
		return err
	}
	heap := limitHeap()
	defer heap.restore()
	background, end := context.WithCancel(context.WithoutCancel(ctx)) // of models; outlives a signal
	defer end()
	c.lost = make(chan error, 1)
	s, err := c.build(background, w)
	if err != nil {
		return err
	}
	defer s.close()
	s.fleet.limitHeap(heap)
	listener, err := c.listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	leaveRoom(s.fleet.threads(), 0)
	// From here on there is something to drain. An earlier signal ends the process at once.
	ctx, stop := c.catchSignals(ctx)
	defer stop()
	failed := make(chan error, 1)
	go func() { failed <- c.serve(s.server, listener) }()
	c.warnOfAccess(listener.Addr())
	slog.Info("serving", "model", w.models[0].name, "models", len(w.models), "at", c.scheme()+listener.Addr().String())
	unwatch, err := c.operate(ctx, c.access(c.Host))
	if err != nil {
		return err
	}
	defer unwatch()
	if first := s.first; first != nil {
		if !c.Lazy {
			go c.view.watch(ctx, func() dispatch.Loading { return s.fleet.loading(first) })
		}
		s.fleet.begin(first)
	}
	go s.fleet.models.UnloadIdle(ctx)
	select {
	case err := <-failed:
		return err
	case err := <-c.lost:
		slog.Error("a GPU was lost: the server ends", "reason", err)
		return errors.Join(err, c.drain(s.server, s.fleet.models))
	case <-ctx.Done():
	}
	stop() // a second signal ends the process at once
	unwatch()
	s.batches.Stop()
	return c.drain(s.server, s.fleet.models)
}

// warnOfAccess warns if requests need no key although one may expect it.
func (c *runCmd) warnOfAccess(at net.Addr) {
	c.warn()
	if c.exposed(at) {
		slog.Warn("the server is not on a loopback address and asks for no key: whoever reaches it may use it; set HEFT_API_KEY or --api-keys")
	}
}

// exposed reports whether other machines reach the server at an address and need no key.
func (c *runCmd) exposed(at net.Addr) bool {
	return !onlyLocal(at) && len(c.plainKeys()) == 0 && c.APIKeys == ""
}

// onlyLocal reports whether only this machine reaches an address: a loopback address, or a Unix socket.
func onlyLocal(at net.Addr) bool {
	tcp, ok := at.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// catchSignals returns a context that ends with SIGINT, SIGTERM, or SIGHUP from a closing terminal.
// It ignores SIGPIPE: requests continue if the reader of the log exits.
func (c *runCmd) catchSignals(ctx context.Context) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE)
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !c.reloads() && !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(ctx, signals...)
}

// deviceLost ends the server after a device is lost. The running requests have failed, and later
// ones would fail.
func (c *runCmd) deviceLost(err *dispatch.DeviceError) {
	select {
	case c.lost <- err:
	default: // the server is ending already
	}
}

// check rejects invalid values.
func (c *runCmd) check() error {
	switch {
	case c.Port < 0 || c.Port > 65535:
		return cmdline.Misusef("--port: got %d, want a number between 0 and 65535", c.Port)
	case c.MaxQueue < 0:
		return cmdline.Misusef("--max-queue: got %d, want at least 0", c.MaxQueue)
	case c.ShutdownTimeout < 0:
		return cmdline.Misusef("--shutdown-timeout: got %v, want at least 0s", c.ShutdownTimeout)
	case c.ClientTimeout < 0:
		return cmdline.Misusef("--client-timeout: got %v, want at least 0s", c.ClientTimeout)
	}
	if err := text.CheckParsers(c.ToolCallParser, ""); err != nil {
		return cmdline.Misusef("--tool-call-parser: %w", err)
	}
	if err := text.CheckParsers("", c.ReasoningParser); err != nil {
		return cmdline.Misusef("--reasoning-parser: %w", err)
	}
	return errors.Join(c.checkHost(), c.servedFlags.check(), c.draftFlags.check(), c.accessFlags.check(), c.storeFlags.check(), c.kvStoreFlags.check())
}

// checkHost rejects a host with a port or a scheme. It removes the brackets of an IPv6 address.
func (c *runCmd) checkHost() error {
	if bare, ok := strings.CutPrefix(c.Host, "["); ok && strings.HasSuffix(bare, "]") {
		c.Host = strings.TrimSuffix(bare, "]")
	}
	if _, err := netip.ParseAddr(c.Host); err == nil || !strings.ContainsAny(c.Host, ":/[]") {
		return nil
	}
	if host, port, err := net.SplitHostPort(c.Host); err == nil && !strings.Contains(c.Host, "/") {
		return cmdline.Misusef("--host %s: got an address with a port, want an address: use --host %s --port %s", c.Host, cmp.Or(host, "0.0.0.0"), port)
	}
	return cmdline.Misusef("--host %s: want an address or a name, such as 127.0.0.1 or localhost", c.Host)
}

func (c *runCmd) listen() (net.Listener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("%w: stop what listens there, or choose another --port (0 is any that is free)", err)
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%w: choose a --port from 1024 up", err)
	case err != nil:
		err = fmt.Errorf("--host %s, --port %d: %w", c.Host, c.Port, err)
	}
	return l, err
}

func (c *runCmd) log() error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return cmdline.Misusef("--log-level: %w", err)
	}
	c.lines = logbuffer.New(os.Stderr, logBytes, func(n int) {
		slog.Warn("the log was not read: lines were dropped", "count", n)
	})
	c.view = newLoadView(os.Stderr, c.lines)
	slog.SetDefault(slog.New(c.handler(level, c.view)))
	return nil
}

// flush waits for the reader of the log before the server exits with err, and returns err. If the
// log is not read, err cannot be printed either.
func (c *runCmd) flush(err error) error {
	if c.lines != nil && !c.lines.Flush(logWait) && err != nil {
		return cmdline.Unprinted()
	}
	return err
}

// drain rejects new requests and waits for the running ones.
func (c *runCmd) drain(server *http.Server, m *generate.Models) error {
	slog.Info("draining", "timeout_seconds", c.ShutdownTimeout.Seconds())
	ctx, cancel := context.WithTimeout(context.Background(), c.ShutdownTimeout)
	defer cancel()
	if err := m.Shutdown(ctx); err != nil {
		slog.Warn("requests were ended before they were complete, at --shutdown-timeout", "reason", err)
		m.Close()
	}
	if err := server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("draining: %w", err), server.Close())
	}
	return nil
}

// queue converts the value of --max-queue for the engine, where 0 means the default and a negative
// number means no queue.
func queue(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// checkDevices rejects plans for devices that this build does not support.
func checkDevices(plan devicemap.Plan) error {
	for _, d := range plan.Devices {
		if _, gpu := d.Device.GPU(); gpu && dispatch.GPUCode {
			continue
		}
		if d.WeightsBytes > 0 && d.Device != devicemap.CPU && d.Device != devicemap.Disk {
			return cmdline.Misusef("device %s: this build computes on the CPU; leave the device out of --device-map and --max-memory (serve plan shows where it would help)", d.Device)
		}
	}
	return nil
}

// warnPlan logs the plan's warnings and the contents of each device.
func warnPlan(plan devicemap.Plan) {
	for _, w := range plan.Warnings {
		slog.Warn(w)
	}
	for _, d := range plan.Devices {
		if d.WeightsBytes > 0 {
			slog.Info("plan", "device", d.Device, "weights", gib(d.WeightsBytes), "kv", gib(d.KVBytes))
		}
	}
	for _, text := range []string{plan.ExpertPlacement, dispatch.StreamsPrompts(&plan)} {
		if text != "" {
			slog.Info(text)
		}
	}
}
