package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/hub"
	"github.com/heftai/heft/internal/repl"
)

// chatCmd is serve chat.
type chatCmd struct {
	modelFlags
	placeFlags
	sizeFlags
	adapterFlags
	clientFlags
	URL     string `name:"url" help:"Chat with this running server instead of loading a model." placeholder:"URL"`
	System  string `help:"Use this system prompt." placeholder:"TEXT"`
	History string `help:"Save input lines in this file (default: heft/chat_history in the user's config)." placeholder:"FILE|none"`

	stdin, stdout, stderr *os.File // nil means the process's
}

// Run chats until the input ends. Ctrl-C stops the answer in progress.
func (c *chatCmd) Run(ctx context.Context, k *kong.Context) error {
	c.readAddress()
	c.stdin, c.stdout, c.stderr = cmp.Or(c.stdin, os.Stdin), cmp.Or(c.stdout, os.Stdout), cmp.Or(c.stderr, os.Stderr)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client, end, err := c.connect(ctx, k)
	if err != nil {
		return err
	}
	defer end()
	s := &repl.Session{Client: client, System: c.System, Out: c.stdout, Err: c.stderr,
		Fancy: repl.IsTerminal(c.stdout) && os.Getenv("TERM") != "dumb", Plain: os.Getenv("NO_COLOR") != ""}
	if s.Model, err = c.choose(ctx, client); err != nil {
		return err
	}
	in, err := c.input()
	if err != nil {
		return err
	}
	if in.Interactive() {
		fmt.Fprintf(c.stderr, "%s. /help lists commands, Ctrl-D ends.\n", s.Model)
	}
	return converse(ctx, s, in)
}

// converse runs a session. A signal ends it if no answer is in progress.
func converse(ctx context.Context, s *repl.Session, in repl.Input) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	interrupts := make(chan os.Signal)
	if in.Interactive() {
		s.Interrupts = interrupts
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, in) }()
	for {
		select {
		case err := <-ended:
			return err
		case by := <-signals:
			if by == os.Interrupt {
				select {
				case interrupts <- by:
					continue
				default:
				}
			}
			_ = in.Close() // restores the terminal's state
			number, _ := by.(syscall.Signal)
			return cmdline.Stopped(number)
		}
	}
}

// input returns the terminal's line editor, or a reader of piped input.
func (c *chatCmd) input() (repl.Input, error) {
	if !repl.IsTerminal(c.stdin) || !repl.IsTerminal(c.stderr) {
		return repl.NewPipe(c.stdin), nil
	}
	path := c.History
	if path == "" {
		dir, err := os.UserConfigDir()
		if err != nil {
			path = "none" // without a home directory there is no history
		} else {
			path = filepath.Join(dir, "heft", "chat_history")
		}
	}
	if path == "none" {
		return repl.NewConsole(c.stdin, c.stderr, "> ", nil), nil
	}
	h, err := repl.OpenHistory(path)
	if err != nil {
		return nil, err
	}
	return repl.NewConsole(c.stdin, c.stderr, "> ", h), nil
}

// readAddress takes the address of a server in place of a model as --url.
func (c *chatCmd) readAddress() {
	if c.URL == "" && c.Model == "" && (strings.HasPrefix(c.M, "http://") || strings.HasPrefix(c.M, "https://")) && hub.FromPage(c.M) == c.M {
		c.URL, c.M = c.M, ""
	}
}

// choose returns the name of the model to chat with: the one that the user names with --url, or the
// first one. It returns an error at once if the model cannot chat.
func (c *chatCmd) choose(ctx context.Context, client *repl.Client) (string, error) {
	models, err := client.Models(ctx)
	if err := reachable(client, err); err != nil {
		return "", err
	}
	wanted := ""
	if c.URL != "" {
		if wanted, err = c.path(); err != nil {
			return "", err
		}
	}
	var names []string
	for _, m := range models {
		if names = append(names, m.ID); wanted != "" && m.ID != wanted {
			continue
		}
		if m.NoChat != "" {
			return "", fmt.Errorf("%s: %s", m.ID, m.NoChat)
		}
		return m.ID, nil
	}
	if wanted != "" {
		return "", cmdline.Misusef("the server at %s has no model %q, it has %s", client.URL, wanted, strings.Join(names, ", "))
	}
	return "", fmt.Errorf("the server at %s has no model: start it with --model or --models-dir", client.URL)
}

// connect returns a client of --url, or of a server within this process that no other process can
// reach.
func (c *chatCmd) connect(ctx context.Context, k *kong.Context) (client *repl.Client, end func(), err error) {
	if c.URL != "" {
		client, err = c.client(c.URL)
		return client, func() {}, err
	}
	path, err := c.path()
	if err != nil {
		return nil, nil, err
	}
	r := newLocal(path, c.placeFlags, c.sizeFlags, c.adapterFlags)
	key := rand.Text()
	r.APIKey = &key
	s, free, err := r.startLocal(ctx, k)
	if err != nil {
		return nil, nil, err
	}
	listener := newMemoryListener()
	go func() {
		if err := s.server.Serve(listener); err != nil && err != http.ErrServerClosed {
			slog.Error("serve", "error", err)
		}
	}()
	transport := &http.Transport{DialContext: listener.dial, DisableCompression: true}
	end = func() {
		transport.CloseIdleConnections()
		free()
	}
	return &repl.Client{URL: "http://heft", Key: key, HTTP: &http.Client{Transport: transport}}, end, nil
}

// A memoryListener accepts connections from within the process.
type memoryListener struct {
	accepted chan net.Conn
	closed   chan struct{}
	close    sync.Once
}

func newMemoryListener() *memoryListener {
	return &memoryListener{accepted: make(chan net.Conn), closed: make(chan struct{})}
}

// dial returns a connection to the listener, whatever the address.
func (l *memoryListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.accepted <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and dial. Open connections stay.
func (l *memoryListener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return nil
}

// Addr returns a name that is not an address.
func (l *memoryListener) Addr() net.Addr { return memoryAddr{} }

type memoryAddr struct{}

func (memoryAddr) Network() string { return "memory" }
func (memoryAddr) String() string  { return "memory" }
