package tcp

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Options say how the ranks of a world find each other.
type Options struct {
	Rank, Size int
	// Address is where rank 0 listens, as host:port.
	Address string
	// Token is the run's secret. Ranks with another one are refused.
	Token string
	// Build names the program. All ranks must have the same one.
	Build string
	// Timeout bounds the wait for the other ranks. 0 is 5 minutes.
	Timeout time.Duration
	// OnFail is called once, when the world has failed and before a call says so, from any goroutine. It
	// must not call the link.
	OnFail func(error)
	// Warn receives a line about each peer that is refused. nil drops them.
	Warn func(line string)
	// Listener is rank 0's, if it listens already.
	Listener net.Listener

	listen func(ctx context.Context, address string) (net.Listener, error) // of a test
}

// hello is what a rank says of itself.
type hello struct {
	Rank, Size int
	Build      string
	Listen     string // where higher ranks reach this one
	Nonce      []byte
	MAC        []byte
}

// welcome is the answer. Error refuses.
type welcome struct {
	Error     string
	Addresses []string // of all ranks, from rank 0
	MAC       []byte
}

const maxHandshake = 1 << 20

// Connect returns when this rank is connected to all others. It fails when ctx or the timeout ends,
// or when a rank with the token has another build or another number of ranks.
func Connect(ctx context.Context, o Options) (*Link, error) {
	if o.Size < 1 || o.Rank < 0 || o.Rank >= o.Size {
		return nil, fmt.Errorf("tcp: got rank %d of %d", o.Rank, o.Size)
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Minute
	}
	if o.OnFail == nil {
		o.OnFail = func(error) {}
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("not all %d ranks came within %v", o.Size, o.Timeout))
	defer cancel()
	l := &Link{rank: o.Rank, peers: make([]*peer, o.Size)}
	var err error
	if o.Rank == 0 {
		err = l.host(ctx, o)
	} else {
		err = l.join(ctx, o)
	}
	if err != nil {
		for _, p := range l.peers {
			if p != nil {
				_ = p.conn.Close()
			}
		}
		return nil, fmt.Errorf("tcp: rank %d: %w", o.Rank, err)
	}
	l.start(o.OnFail)
	return l, nil
}

// host is rank 0's side: it waits for all ranks, then tells them each other's addresses.
func (l *Link) host(ctx context.Context, o Options) error {
	lis := o.Listener
	if lis == nil {
		var err error
		if lis, err = listenUntil(ctx, o); err != nil {
			return err
		}
	}
	defer lis.Close()
	addresses := make([]string, o.Size)
	err := l.accept(ctx, lis, o, o.Size-1, func(h hello, conn net.Conn) { addresses[h.Rank] = h.Listen })
	if err != nil {
		return err
	}
	for _, p := range l.peers {
		if p == nil {
			continue
		}
		if err := send(p.conn, welcome{Addresses: addresses, MAC: mac(o.Token, "addresses", fmt.Sprint(addresses))}); err != nil {
			return fmt.Errorf("welcome rank %d at %s: %w", p.rank, p.conn.RemoteAddr(), err)
		}
	}
	return nil
}

// join is the side of the other ranks: they meet rank 0, dial the ranks below and wait for those
// above.
func (l *Link) join(ctx context.Context, o Options) error {
	conn, err := dialUntil(ctx, o.Address)
	if err != nil {
		return fmt.Errorf("rank 0 at %s: %w", o.Address, err)
	}
	host, _, _ := net.SplitHostPort(conn.LocalAddr().String())
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	defer lis.Close()
	met, err := l.meet(ctx, conn, 0, o, lis.Addr().String())
	if err != nil {
		return err
	}
	if len(met.Addresses) != o.Size || !hmac.Equal(met.MAC, mac(o.Token, "addresses", fmt.Sprint(met.Addresses))) {
		return fmt.Errorf("rank 0 at %s has another run token", o.Address)
	}
	for r := 1; r < o.Rank; r++ {
		conn, err := dialUntil(ctx, met.Addresses[r])
		if err != nil {
			return fmt.Errorf("rank %d at %s: %w", r, met.Addresses[r], err)
		}
		if _, err := l.meet(ctx, conn, r, o, ""); err != nil {
			return err
		}
	}
	return l.accept(ctx, lis, o, o.Size-1-o.Rank, func(_ hello, conn net.Conn) {
		_ = send(conn, welcome{}) // an error shows at the first exchange
	})
}

// listenUntil listens on rank 0's address. If its name has no address yet, it looks it up until ctx ends: in a cluster
// the name of a pod may come after its start.
func listenUntil(ctx context.Context, o Options) (net.Listener, error) {
	listen, warned := o.listen, false
	if listen == nil {
		listen = func(ctx context.Context, address string) (net.Listener, error) {
			return new(net.ListenConfig).Listen(ctx, "tcp", address)
		}
	}
	return until(ctx, func() (net.Listener, error) { return listen(ctx, o.Address) }, func(err error) bool {
		var unknown *net.DNSError
		if !errors.As(err, &unknown) {
			return false
		}
		if !warned {
			o.Warn(fmt.Sprintf("waiting for the name %s to have an address: %v", unknown.Name, err))
		}
		warned = true
		return true
	})
}

// dialUntil dials until it succeeds or ctx ends: the other rank may start later.
func dialUntil(ctx context.Context, address string) (net.Conn, error) {
	return until(ctx, func() (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", address) }, func(error) bool { return true })
}

// until tries again, after each error that passes, until ctx ends.
func until[T any](ctx context.Context, try func() (T, error), passes func(error) bool) (T, error) {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		v, err := try()
		if err == nil || !passes(err) {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(wait):
		}
	}
}

// meet proves the token to rank r and takes its welcome.
func (l *Link) meet(ctx context.Context, conn net.Conn, r int, o Options, listen string) (welcome, error) {
	l.peers[r] = &peer{rank: r, conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	var challenge, answer = []byte(nil), welcome{}
	h := hello{Rank: o.Rank, Size: o.Size, Build: o.Build, Listen: listen, Nonce: random()}
	err := receive(l.peers[r].in, &challenge)
	if err == nil {
		h.MAC = h.mac(o.Token, challenge)
		err = send(conn, h)
	}
	if err == nil {
		err = receive(l.peers[r].in, &answer)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	if err != nil {
		return answer, fmt.Errorf("rank %d at %s: %w", r, conn.RemoteAddr(), err)
	}
	return answer, nil
}

// accept takes n peers. A stranger without the token is refused and not counted; a rank that does not
// fit ends the wait.
func (l *Link) accept(ctx context.Context, lis net.Listener, o Options, n int, took func(hello, net.Conn)) error {
	stop := context.AfterFunc(ctx, func() { _ = lis.Close() })
	defer stop()
	arrivals, ended, failed := make(chan arrival), make(chan struct{}), make(chan error, 1)
	defer close(ended)
	go arrive(lis, o, arrivals, ended, failed)
	for n > 0 {
		select {
		case a := <-arrivals:
			at := a.p.conn.RemoteAddr().String()
			if a.err == nil && l.peers[a.h.Rank] != nil {
				a.err, a.known = fmt.Errorf("there is a rank %d already", a.h.Rank), false
				_ = send(a.p.conn, welcome{Error: a.err.Error()})
			}
			if a.err != nil {
				_ = a.p.conn.Close()
				if a.known {
					return fmt.Errorf("refused %s: %w", at, a.err)
				}
				o.Warn(fmt.Sprintf("refused %s: %v", at, a.err))
				continue
			}
			a.p.rank = a.h.Rank
			l.peers[a.h.Rank] = a.p
			took(a.h, a.p.conn)
			n--
		case err := <-failed:
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return err
		}
	}
	return nil
}

// arrival is a peer that was greeted. known says that it proved the token.
type arrival struct {
	h     hello
	p     *peer
	err   error
	known bool
}

// arrive greets peers until the listener is closed.
func arrive(lis net.Listener, o Options, arrivals chan<- arrival, ended <-chan struct{}, failed chan<- error) {
	for {
		conn, err := lis.Accept()
		if err != nil {
			failed <- err
			return
		}
		go func() { // a silent stranger does not keep the ranks waiting
			p := &peer{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			h, known, err := greet(p, o)
			_ = conn.SetDeadline(time.Time{})
			select {
			case arrivals <- arrival{h, p, err, known}:
			case <-ended:
				_ = conn.Close()
			}
		}()
	}
}

// greet challenges a peer. known reports whether it proved the token.
func greet(p *peer, o Options) (h hello, known bool, err error) {
	nonce := random()
	if err := send(p.conn, nonce); err != nil {
		return h, false, err
	}
	if err := receive(p.in, &h); err != nil {
		return h, false, fmt.Errorf("it does not greet as a rank: %w", err)
	}
	switch {
	case !hmac.Equal(h.MAC, h.mac(o.Token, nonce)):
		err = errors.New("it has another run token")
	case h.Build != o.Build:
		known, err = true, fmt.Errorf("rank %d is another build (%.12s, here %.12s): start the same program on all machines", h.Rank, h.Build, o.Build)
	case h.Size != o.Size:
		known, err = true, fmt.Errorf("rank %d is of a world of %d ranks, here of %d", h.Rank, h.Size, o.Size)
	case h.Rank <= o.Rank || h.Rank >= o.Size:
		known, err = true, fmt.Errorf("rank %d is not expected at rank %d of %d", h.Rank, o.Rank, o.Size)
	default:
		return h, true, nil
	}
	_ = send(p.conn, welcome{Error: "refused: " + err.Error()})
	return h, known, err
}

func (h hello) mac(token string, challenge []byte) []byte {
	return mac(token, "hello", fmt.Sprintf("%x %d %d %q %q %x", challenge, h.Rank, h.Size, h.Build, h.Listen, h.Nonce))
}

func mac(token, what, text string) []byte {
	m := hmac.New(sha256.New, []byte(token))
	fmt.Fprintf(m, "heft %s %s", what, text)
	return m.Sum(nil)
}

func random() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it does not fail
	return b
}

// send writes x as JSON behind its length.
func send(w io.Writer, x any) error {
	b, err := json.Marshal(x)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

func receive(r io.Reader, x any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxHandshake {
		return fmt.Errorf("got a message of %d bytes, want at most %d", n, maxHandshake)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	return json.Unmarshal(b, x)
}
