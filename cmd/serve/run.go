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
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/hub"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/text"
)

// runCmd is serve without a command.
type runCmd struct {
	modelFlags
	placeFlags
	sizeFlags
	adapterFlags
	accessFlags
	storeFlags
	ServedModelName string        `help:"Show this name in /v1/models (default: the folder's name)." placeholder:"S"`
	Host            string        `help:"Listen on this address (default ${default})." default:"127.0.0.1" placeholder:"A"`
	Port            int           `help:"Listen on this port; 0 chooses a free one (default ${default})." default:"8000" placeholder:"N"`
	MaxQueue        int           `help:"Let N requests wait; reject further ones with 503 (default ${default})." default:"1024" placeholder:"N"`
	ShutdownTimeout time.Duration `help:"Give running requests this long after SIGTERM (default ${default})." default:"30s" placeholder:"D"`
	ClientTimeout   time.Duration `help:"Disconnect clients that make no progress for this long; 0s never does (default ${default})." default:"60s" placeholder:"D"`
	ToolCallParser  string        `help:"Parse tool calls in this notation (default: the chat template's)." placeholder:"NAME"`
	ReasoningParser string        `help:"Parse reasoning in this notation; none does not (default: the template's)." placeholder:"NAME|none"`
	Lazy            bool          `help:"Read weights only when a request needs them; read nothing ahead."`
	LogLevel        string        `help:"Log at this level and above (default ${default})." enum:"debug,info,warn,error" default:"info" placeholder:"debug|info|warn|error"`

	view   *loadView
	ledger dispatch.Ledger // of all models
}

// Run makes the model ready without loading it, listens, serves, and drains on SIGTERM or
// SIGINT. It takes the port only once flags, config, headers and tokenizer are known to be
// good.
func (c *runCmd) Run(ctx context.Context, k *kong.Context) error {
	if err := errors.Join(c.check(), c.log()); err != nil {
		return err
	}
	w, err := c.find(ctx, k)
	if err != nil {
		return err
	}
	heap := limitHeap()
	defer heap.restore()
	s, err := c.build(ctx, w)
	if err != nil {
		return err
	}
	heap.fit(s.model.Plan())
	heap.follow(s.model)
	defer s.close()
	listener, err := c.listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	leaveRoom(s.model.Kernels().Threads)
	// From here on there is something to drain; a signal before ends the process at once.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed := make(chan error, 1)
	go func() { failed <- s.server.Serve(listener) }()
	c.warn()
	slog.Info("serving", "model", s.name, "at", "http://"+listener.Addr().String())
	s.model.FollowLimits(ctx, func(l dispatch.MemoryLimit) {
		c.ledger.SetLimit(l.Bytes - dispatch.RuntimeBytes)
		logLimit(l)
	})
	if !c.Lazy {
		go c.view.watch(ctx, func() dispatch.Loading { return s.model.Status().Loading })
	}
	s.model.Promote(ctx)
	if !c.Lazy {
		s.report.start() // it measures the disk
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal ends the process at once
	return c.drain(s.server, s.generator)
}

// check refuses values that have no meaning.
func (c *runCmd) check() error {
	switch {
	case c.Port < 0 || c.Port > 65535:
		return cmdline.Misusef("--port %d: it is between 0 and 65535", c.Port)
	case c.MaxQueue < 0:
		return cmdline.Misusef("--max-queue is %d; it is at least 0", c.MaxQueue)
	case c.ShutdownTimeout < 0:
		return cmdline.Misusef("--shutdown-timeout is %v; it is at least 0s", c.ShutdownTimeout)
	case c.ClientTimeout < 0:
		return cmdline.Misusef("--client-timeout is %v; it is at least 0s", c.ClientTimeout)
	}
	return errors.Join(c.accessFlags.check(), c.storeFlags.check())
}

func (c *runCmd) listen() (net.Listener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("%w: stop what listens there, or choose another --port (0 is any that is free)", err)
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%w: choose a --port from 1024 up", err)
	}
	return l, err
}

func (c *runCmd) log() error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return cmdline.Misusef("--log-level: %w", err)
	}
	c.view = newLoadView(os.Stderr)
	slog.SetDefault(slog.New(c.handler(level, c.view)))
	return nil
}

// drain refuses new requests and waits for those that run.
func (c *runCmd) drain(server *http.Server, m *generate.Model) error {
	slog.Info("draining", "timeout", c.ShutdownTimeout)
	ctx, cancel := context.WithTimeout(context.Background(), c.ShutdownTimeout)
	defer cancel()
	if err := m.Shutdown(ctx); err != nil {
		slog.Warn("requests were cut off", "reason", err)
		m.Close()
	}
	if err := server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("draining: %w", err), server.Close())
	}
	return nil
}

// A service is a model that is wired for HTTP.
type service struct {
	name       string
	checkpoint *loader.Checkpoint
	model      *dispatch.Model
	generator  *generate.Model
	report     *reporter
	server     *http.Server
}

func (s *service) close() {
	if s.report != nil {
		s.report.close()
	}
	if s.generator != nil {
		s.generator.Close()
	}
	if s.model != nil {
		s.model.Close()
	}
	_ = s.checkpoint.Close() // opened for reading
}

// A request is a model with its options, as the command line says.
type request struct {
	source  source
	name    string
	options dispatch.Options
}

// find reads the flags and finds the model's files. On a terminal it offers to pull a model
// that is not in the hub's cache.
func (c *runCmd) find(ctx context.Context, k *kong.Context) (request, error) {
	w, err := c.request()
	var missing *hub.MissingError
	switch term, ok := onTerminal(); {
	case errors.As(err, &missing) && ok:
		if err := offerPull(ctx, term, err); err != nil {
			return w, err
		}
		return c.request()
	case errors.Is(err, fs.ErrNotExist) && isWord(c.M) && !slices.Contains(k.Args, "run"):
		return w, unknownCommand(c.M, k.Model.Children)
	}
	return w, err
}

// request reads the flags and finds the model's files.
func (c *runCmd) request() (w request, err error) {
	path, err := c.path()
	if err != nil {
		return w, err
	}
	if w.options, err = c.options(); err != nil {
		return w, err
	}
	if err = c.place(&w.options); err != nil {
		return w, err
	}
	w.options.Lazy = c.Lazy
	if w.source, err = newSource(path); err != nil {
		return w, err
	}
	if w.name = w.source.name; c.ServedModelName != "" {
		w.name = c.ServedModelName
	}
	w.options.Adapters, err = c.adapters(w.name)
	return w, err
}

// build reads config, headers and tokenizer, plans and wires. When it returns, the background has
// begun to read weights, unless Lazy is set.
func (c *runCmd) build(ctx context.Context, w request) (*service, error) {
	read := make(chan error, 1)
	var words generate.Text
	go func() { // while headers are read: a large vocabulary takes as long
		var err error
		words, err = generate.ReadText(w.source.files, w.source.where())
		read <- err
	}()
	skeleton, checkpoint, err := w.source.open()
	if err != nil {
		return nil, err
	}
	s := &service{name: w.name, checkpoint: checkpoint}
	if err := c.applyDtype(skeleton, &w.options); err != nil {
		s.close()
		return nil, err
	}
	w.options.Routing, w.options.Ledger = usualRouting(c.CacheDir, skeleton), &c.ledger
	plan, options, err := dispatch.Plan(skeleton, w.options)
	if err == nil {
		err = checkDevices(plan)
	}
	if err == nil {
		warnPlan(plan)
		s.model, err = dispatch.New(skeleton, checkpoint, plan.Map, options)
	}
	if err == nil {
		if host := plan.Device(devicemap.CPU); host.LimitBytes > 0 {
			c.ledger.SetLimit(max(host.LimitBytes, host.Used()) - dispatch.RuntimeBytes)
		}
		s.model.TuneReads(ctx, measurementsDir(c.CacheDir))
		s.model.KeepRouting(measurementsDir(c.CacheDir), func(err error) { slog.Warn("the routing is not kept for later plans: " + err.Error()) })
		s.model.Warm(ctx) // beside what is left
		err = <-read
	}
	if err == nil {
		warnText(words, s.name)
		s.generator, err = c.generator(s, words)
	}
	if err != nil {
		s.close()
		if refused(err) {
			err = cmdline.Misuse(err)
		}
		return nil, err
	}
	warnUnexpected(s.model)
	if err := c.wire(s, plan, w.options); err != nil {
		s.close()
		return nil, err
	}
	s.report.report.KVTokens = options.KVTokens // no one asks yet
	return s, nil
}

// generator joins the model and its text. The engine runs then.
func (c *runCmd) generator(s *service, words generate.Text) (*generate.Model, error) {
	m, err := generate.New(s.model, generate.Options{Name: s.name, Text: &words, MaxBatch: c.MaxBatch, MaxQueue: queue(c.MaxQueue),
		ToolCallParser: c.ToolCallParser, ReasoningParser: c.ReasoningParser})
	if err != nil {
		return nil, cmdline.Misusef("--tool-call-parser, --reasoning-parser: %w", err)
	}
	if m.Chat != nil && m.Chat.UnreadCalls() {
		slog.Warn("tool calls are not parsed and stay in the content: the chat template has an unknown notation; name one with --tool-call-parser",
			"model", s.name, "known", strings.Join(text.ParserNames(), ", "))
	}
	return m, nil
}

// wire puts the HTTP handler on the model.
func (c *runCmd) wire(s *service, plan devicemap.Plan, asked dispatch.Options) error {
	kept, err := c.storeFlags.open()
	if err != nil {
		return err
	}
	s.report = newReporter(s.model, s.generator, plan, asked)
	s.server = api.NewServer(s.generator, api.Options{
		Plan: s.report.now, Version: version, Lazy: c.Lazy, APIKeys: c.keys(), Access: c.access(c.Host), Timeouts: api.Timeouts{Stall: cmp.Or(c.ClientTimeout, -1)},
		Store: kept,
	})
	return nil
}

// queue converts the value of --max-queue for the engine, for which 0 means its default and a
// negative number means no queue.
func queue(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// checkDevices refuses plans for devices that this build does not compute on.
func checkDevices(plan devicemap.Plan) error {
	for _, d := range plan.Devices {
		if d.WeightsBytes > 0 && d.Device != devicemap.CPU && d.Device != devicemap.Disk {
			return cmdline.Misusef("device %s: this build computes on the CPU; leave the device out of --device-map and --max-memory (serve plan shows where it would help)", d.Device)
		}
	}
	return nil
}

// warnPlan logs the plan's warnings and what each device holds.
func warnPlan(plan devicemap.Plan) {
	for _, w := range plan.Warnings {
		slog.Warn(w)
	}
	for _, d := range plan.Devices {
		if d.WeightsBytes > 0 {
			slog.Info("plan", "device", d.Device, "weights", gib(d.WeightsBytes), "kv", gib(d.KVBytes))
		}
	}
}
