package backlog

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

const header = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"

// listen returns a listener on a free port.
func listen(t *testing.T, limits Limits) net.Listener {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(tcp, limits)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serve serves answers of the request's body, and returns the listener.
func serve(t *testing.T, limits Limits) net.Listener {
	t.Helper()
	l := listen(t, limits)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
	return l
}

// dial connects and sends text.
func dial(t *testing.T, l net.Listener, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// answer returns the body of the answer.
func answer(t *testing.T, c net.Conn) string {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestSilentConnectionsKeptNewClientsWaiting: with a limit of 512 MiB, 6,000 connections that sent nothing, or half a
// request, kept a new client waiting for up to 20 seconds. Here all that the server closes has had an hour.
func TestSilentConnectionsKeptNewClientsWaiting(t *testing.T) {
	for name, sent := range map[string]string{"nothing": "", "half a header": header[:20], "half a body": header + "12"} {
		l := serve(t, Limits{Most: 4})
		for range 20 {
			dial(t, l, sent)
			if got := answer(t, dial(t, l, header+"1234")); got != "1234" {
				t.Errorf("%s: got %q", name, got)
			}
		}
	}
}

// TestHeldRequestsArriveInPieces: a request in pieces is served when it is whole, or when the client ends it.
func TestHeldRequestsArriveInPieces(t *testing.T) {
	l := serve(t, Limits{Most: 4})
	c := dial(t, l, "")
	for _, b := range []byte(header + "1234") {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if got := answer(t, c); got != "1234" {
		t.Errorf("got %q", got)
	}
	c = dial(t, l, header+"12")
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := answer(t, c); got != "12" {
		t.Errorf("of a body that ends early: got %q, want what has arrived", got)
	}
}

// TestHeldConnectionsExpire: a connection without a whole header is closed after a time. One with half a body is
// passed on, as the server has limits for bodies.
func TestHeldConnectionsExpire(t *testing.T) {
	l := serve(t, Limits{Most: 4, Patience: time.Millisecond})
	for _, sent := range []string{"", header[:20]} {
		if b, err := io.ReadAll(dial(t, l, sent)); len(b) != 0 {
			t.Errorf("after %q: got %q, %v, want the end of the connection", sent, b, err)
		}
	}
	c := dial(t, l, header+"12")
	for l.(*listener).count() > 0 {
		time.Sleep(time.Millisecond)
	}
	if _, err := io.WriteString(c, "34"); err != nil {
		t.Fatal(err)
	}
	if got := answer(t, c); got != "1234" {
		t.Errorf("got %q", got)
	}
}

// TestAPauseOfTheServerDroppedNewRequests: a request that arrived while the process was stopped, or its machine
// suspended, for longer than Patience lost its connection.
func TestAPauseOfTheServerDroppedNewRequests(t *testing.T) {
	l := serve(t, Limits{Most: 4, Patience: time.Hour}).(*listener)
	c := dial(t, l, "")
	for l.count() == 0 {
		time.Sleep(time.Millisecond)
	}
	l.mu.Lock() // the process is stopped
	if _, err := io.WriteString(c, header+"1234"); err != nil {
		t.Error(err)
	}
	l.waiting.longest().since = time.Now().Add(-2 * time.Hour)
	l.expire()
	l.mu.Unlock()
	if got := answer(t, c); got != "1234" {
		t.Errorf("got %q", got)
	}
}

// count returns the number of held connections.
func (b *listener) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting.len()
}

// TestAClosedListenerClosesHeldConnections: the connections that wait end with the listener.
func TestAClosedListenerClosesHeldConnections(t *testing.T) {
	l := listen(t, Limits{Most: 1, Grace: time.Hour})
	first, second := dial(t, l, ""), dial(t, l, "") // the second one waits for the first one's place
	for l.(*listener).count() == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: got %v, want net.ErrClosed", err)
	}
	for _, c := range []net.Conn{first, second} {
		if b, err := io.ReadAll(c); len(b) != 0 {
			t.Errorf("got %q, %v, want the end of the connection", b, err)
		}
	}
}
