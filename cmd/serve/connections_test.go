package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/heftai/heft/api/generate"
)

// A piped is a listener of connections within the process, which take no descriptors.
type piped struct {
	conns chan net.Conn
	once  sync.Once
	ended chan struct{}
}

func (p *piped) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *piped) Close() error   { p.once.Do(func() { close(p.ended) }); return nil }
func (p *piped) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// dial opens a connection and sends text, which the server reads whole.
func (p *piped) dial(t *testing.T, text string) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	p.conns <- server
	if _, err := io.WriteString(client, text); err != nil {
		t.Fatal(err)
	}
	return client
}

// completion is a request whose body is missing its end.
func completion(fields string, missing int) string {
	body := fmt.Sprintf(`{"prompt": [5, 6, 7], "temperature": 0%s}`, fields)
	return fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:len(body)-missing])
}

// TestIdleAndSlowConnectionsLeaveNothing: of 1,000 connections 900 send nothing, send half a request or do not read
// their answer. The others get their answers. When all are closed, no goroutine and no memory for requests is left.
func TestIdleAndSlowConnectionsLeaveNothing(t *testing.T) {
	s := fleetOf(t, runCmd{servedFlags: servedFlags{Model: []string{tinyBase(t)}}, MaxQueue: 1024})
	var open sync.WaitGroup
	note := s.server.ConnState
	s.server.ConnState = func(c net.Conn, state http.ConnState) {
		note(c, state)
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Done()
		}
	}
	listener := &piped{conns: make(chan net.Conn), ended: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(listener) }()

	var slow []net.Conn
	for range 425 {
		slow = append(slow, listener.dial(t, ""), listener.dial(t, completion("", 7)))
	}
	for range 50 {
		slow = append(slow, listener.dial(t, completion(`, "stream": true, "max_tokens": 50`, 0)))
	}
	var wait sync.WaitGroup
	answers := make([]string, 100)
	for i := range answers {
		wait.Go(func() {
			c := listener.dial(t, "")
			defer c.Close()
			answers[i] = twice(t, c)
		})
	}
	wait.Wait()
	for i, text := range answers {
		if text == "" || text != answers[0] {
			t.Fatalf("connection %d got %q, another one %q", i, text, answers[0])
		}
	}
	for _, c := range slow {
		_ = c.Close() // its request ends
	}
	open.Wait() // the test's own time limit ends a leak
	collected(t, s)
	// A request that is cancelled leaves its pass at the end of the step that it is in, when its connection is closed.
	for s.first.generator.Sequences() != (generate.Sequences{}) {
		runtime.Gosched()
	}
	if err := s.server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != http.ErrServerClosed {
		t.Error(err)
	}
}

// collected waits until what requests have released no longer counts.
func collected(t *testing.T, s *service) {
	t.Helper()
	// What requests have released counts until it is collected, which a large request causes at its end: it is then all
	// that counts. The connections took 28 MiB.
	large := fmt.Sprintf(`{"prompt": [5, 6, 7], "max_tokens": 1, "user": "%s"}`, strings.Repeat("u", 5<<20))
	for first := true; first || s.fleet.ledger.Held()["requests"] > 6<<20; first = false {
		answer := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodPost, "http://localhost/v1/completions", strings.NewReader(large))
		request.Header.Set("Content-Type", "application/json")
		s.server.Handler.ServeHTTP(answer, request)
		if answer.Code != http.StatusOK {
			t.Fatalf("a large request: %d %s", answer.Code, answer.Body)
		}
	}
}

// twice sends two requests on a connection and returns the text of the answers, which must be equal, "" if they are not.
func twice(t *testing.T, c net.Conn) (text string) {
	read := bufio.NewReader(c)
	for i := range 2 {
		if _, err := io.WriteString(c, completion(`, "max_tokens": 4, "logprobs": 1`, 0)); err != nil {
			t.Error(err)
			return ""
		}
		answer, err := http.ReadResponse(read, nil)
		if err != nil {
			t.Error(err)
			return ""
		}
		b, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("status %d, %v: %s", answer.StatusCode, err, b)
			return ""
		}
		_, choices, _ := strings.Cut(string(b), `"choices"`)
		if i == 1 && choices != text {
			return ""
		}
		text = choices
	}
	return text
}
