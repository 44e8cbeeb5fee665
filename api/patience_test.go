package api_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// smallBuffers is a listener whose connections buffer little unread data.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	return c, err
}

// hasty serves m with a short client timeout, and returns its address.
func hasty(t *testing.T, m *generate.Model, limits api.Timeouts) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := api.NewServer(m, api.Options{Timeouts: limits,
		Status: func() dispatch.Status { return dispatch.Status{} }})
	s.ConnContext = nil // the listener's buffers are smaller
	done := make(chan error, 1)
	go func() { done <- s.Serve(smallBuffers{l}) }()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return l.Addr().String()
}

// dial opens a connection with a small receive buffer.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

func head(path string, length int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", path, length)
}

const short = 100 * time.Millisecond

// pipes is a listener in memory. Its connections buffer no unread data, and their deadlines
// are in the time of a synctest bubble, in which no client is late because the machine is busy.
type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.dialed:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// inBubble runs f in a synctest bubble with a function that connects to a server of a model with limits.
func inBubble(t *testing.T, limits api.Timeouts, model func(t *testing.T) *generate.Model, f func(t *testing.T, dial func() net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})}
		m := model(t)
		s := api.NewServer(m, api.Options{Timeouts: limits, Status: func() dispatch.Status { return dispatch.Status{} }})
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		f(t, func() net.Conn {
			client, server := net.Pipe()
			t.Cleanup(func() { _ = client.Close() })
			l.dialed <- server
			return client
		})
		_ = s.Close()
		<-done
	})
}

func quick(t *testing.T) *generate.Model {
	return generatetest.Fake(t, &enginetest.Model{}, engine.Options{})
}

// TestAClientThatSendsNoHeaderIsDisconnected: connections that say nothing, or not all, held a
// goroutine each.
func TestAClientThatSendsNoHeaderIsDisconnected(t *testing.T) {
	for name, said := range map[string]string{
		"nothing":         "",
		"half a header":   "POST /v1/completions HTTP/1.1\r\nHost:",
		"and then silent": "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		inBubble(t, api.Timeouts{Header: short, Idle: short, Stall: short}, quick, func(t *testing.T, dial func() net.Conn) {
			c, begin := dial(), time.Now()
			if _, err := io.WriteString(c, said); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, c); err != nil { // until the server closes it
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(begin); took > time.Second {
				t.Errorf("%s: it took %v", name, took)
			}
		})
	}
}

// TestAHeaderHasNoMoreTimeThanAStallingClient: with a limit of 3 seconds for clients that stall, half a header held its
// connection for 10 seconds.
func TestAHeaderHasNoMoreTimeThanAStallingClient(t *testing.T) {
	for stall, want := range map[time.Duration]time.Duration{3 * time.Second: 3 * time.Second, time.Minute: 10 * time.Second, -1: 10 * time.Second} {
		inBubble(t, api.Timeouts{Stall: stall}, quick, func(t *testing.T, dial func() net.Conn) {
			c, begin := dial(), time.Now()
			if _, err := io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost:"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, c); err != nil { // until the server closes it
				t.Errorf("stall %v: %v", stall, err)
			}
			if took := time.Since(begin); took < want || took > want+time.Second {
				t.Errorf("stall %v: the connection was closed after %v, want %v", stall, took, want)
			}
		})
	}
}

// TestABodyThatStallsIsAnError: a body of which nothing more came, or a byte now and then,
// held a goroutine for ever.
func TestABodyThatStallsIsAnError(t *testing.T) {
	for name, every := range map[string]time.Duration{"silent": time.Hour, "drop by drop": short / 4} {
		for _, path := range []string{completions, "/health", "/nowhere"} {
			t.Run(name+path, func(t *testing.T) {
				inBubble(t, api.Timeouts{Stall: short}, quick, func(t *testing.T, dial func() net.Conn) {
					stalls(t, dial(), path, every)
				})
			})
		}
	}
}

// stalls sends the beginning of a body, and more of it so often. It checks that the server answers soon and closes.
func stalls(t *testing.T, c net.Conn, path string, every time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	dropped := make(chan struct{})
	go func() {
		defer close(dropped)
		_, err := io.WriteString(c, head(path, 1000)+`{"prompt":`)
		for err == nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(every):
				_, err = io.WriteString(c, " ")
			}
		}
	}()
	begin := time.Now()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("it took %v", took)
	}
	if path == completions {
		checkError(t, resp.StatusCode, decodeBody(t, resp), 408, nil, "request_timeout", "slowly")
	}
	if !resp.Close {
		t.Error("the connection is kept")
	}
	cancel()
	_ = c.Close()
	<-dropped
}

// TestASlowUploadMayTakeLong: a slow upload that makes progress is not disconnected.
func TestASlowUploadMayTakeLong(t *testing.T) {
	inBubble(t, api.Timeouts{Stall: 5 * short}, quick, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		body := `{"prompt":[1,2,3],"max_tokens":2,"return_token_ids":true}` + strings.Repeat(" ", 100_000)
		if _, err := io.WriteString(c, head(completions, len(body))); err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(body); at += 10_000 { // three times as long as a client may stall
			if _, err := io.WriteString(c, body[at:min(at+10_000, len(body))]); err != nil {
				t.Fatal(err)
			}
			time.Sleep(short * 3 / 2)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("status %d: %v", resp.StatusCode, decodeBody(t, resp))
		}
	})
}

// TestAClientThatReadsNothingFreesItsPlace: its connection is open, but it takes nothing of
// its stream; the request ran on and kept its pages.
func TestAClientThatReadsNothingFreesItsPlace(t *testing.T) {
	m := generatetest.Fake(t, &enginetest.Model{MaxLen: 1 << 16, Pages: 1 << 15, Delay: time.Millisecond}, engine.Options{})
	c := dial(t, hasty(t, m, api.Timeouts{Stall: short}))
	body := mustJSON(t, obj{"prompt": []int{1, 2, 3}, "max_tokens": 50_000, "stream": true, "return_token_ids": true, "ignore_eos": true, "logprobs": 5})
	if _, err := io.WriteString(c, head(completions, len(body))+body); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the request runs", func() bool { return generatetest.Engine(m).Stats().Running > 0 })
	eventually(t, "its place is free", func() bool {
		st := generatetest.Engine(m).Stats()
		return st.Running+st.Waiting+st.KV.Used == 0
	})
}

// TestAClientThatTakesNoAnswerIsDisconnected: of an answer that is sent at once, too.
func TestAClientThatTakesNoAnswerIsDisconnected(t *testing.T) {
	spoken := func(t *testing.T) *generate.Model {
		return generatetest.Spoken(t, &enginetest.Model{MaxLen: 1 << 20, Pages: 1 << 17}, engine.Options{})
	}
	inBubble(t, api.Timeouts{Stall: short}, spoken, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		body := mustJSON(t, obj{"prompt": strings.Repeat("a ", 1<<20)})
		go func() { _, _ = io.WriteString(c, head("/tokenize", len(body))+body) }()
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil { // the answer has begun
			t.Fatal(err)
		}
		time.Sleep(10 * short)
		if n, _ := io.Copy(io.Discard, c); n > 4<<20 { // ends when the server disconnects, before the whole answer
			t.Errorf("%d bytes came", n)
		}
	})
}

// TestAModelMayThinkLongerThanAClientMayStall: between two tokens, and before the first.
func TestAModelMayThinkLongerThanAClientMayStall(t *testing.T) {
	for _, stream := range []bool{false, true} {
		var g gate
		thinks := func(t *testing.T) *generate.Model {
			g = make(gate) // in the bubble
			return generatetest.Fake(t, &enginetest.Model{BeforePass: g.pass}, engine.Options{})
		}
		inBubble(t, api.Timeouts{Header: short, Idle: short, Stall: short}, thinks, func(t *testing.T, dial func() net.Conn) {
			c := dial()
			body := mustJSON(t, obj{"prompt": []int{1, 2, 3}, "max_tokens": 2, "stream": stream, "return_token_ids": true, "ignore_eos": true})
			if _, err := io.WriteString(c, head(completions, len(body))+body); err != nil {
				t.Fatal(err)
			}
			go func() {
				for range 2 {
					time.Sleep(time.Minute)
					g <- struct{}{}
				}
			}()
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || resp.StatusCode != 200 || stream && !bytes.HasSuffix(b, []byte("data: [DONE]\n\n")) {
				t.Errorf("stream %t: status %d, %v: %s", stream, resp.StatusCode, err, b)
			}
		})
	}
}
