package api

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heftai/heft/api/openai"
	"github.com/heftai/heft/api/wire"
)

// conns are n connections that may be closed.
func conns(t *testing.T, n int) []net.Conn {
	t.Helper()
	var list []net.Conn
	for range n {
		a, b := net.Pipe()
		t.Cleanup(func() { _ = b.Close() })
		list = append(list, a)
	}
	return list
}

func closed(conn net.Conn) bool { return conn.SetDeadline(time.Time{}) != nil }

// accept notes a new connection, and returns whether it is accepted.
func accept(c *connections, conn net.Conn) func() bool {
	done := make(chan bool)
	go func() {
		c.note(conn, http.StateNew)
		close(done)
	}()
	return func() bool {
		synctest.Wait()
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
}

// TestIdleConnectionsAreBounded: thousands of connections without a request took memory that no
// plan counted.
func TestIdleConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnections(0, 1000)
		all := conns(t, c.most+3)
		for _, conn := range all[:c.most] {
			c.note(conn, http.StateNew)
		}
		c.note(all[0], http.StateActive) // has a request and is not counted
		c.note(all[c.most], http.StateNew)
		time.Sleep(grace)
		if slices.ContainsFunc(all, closed) {
			t.Error("a connection was closed below the limit")
		}
		c.note(all[c.most+1], http.StateNew)
		if closed(all[0]) || !closed(all[1]) || closed(all[2]) {
			t.Error("want the connection closed that has waited longest without a request")
		}
		c.note(all[1], http.StateClosed)
		c.note(all[3], http.StateClosed)
		c.note(all[c.most+2], http.StateNew)
		if closed(all[2]) {
			t.Error("a closed connection is still counted")
		}
	})
	if n := newConnections(144<<20, 1000).most; n != 576 {
		t.Errorf("144 MiB for requests allow %d connections without a request, want 576", n)
	}
}

// TestRejectedBodiesThatNeverArriveTookMemory: 9000 connections whose body was rejected unread took 290 MB beside a limit
// of 512 MiB. They are closed like idle ones, also if the handler did not read the body of a request.
func TestRejectedBodiesThatNeverArriveTookMemory(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"rejected": func(w http.ResponseWriter, r *http.Request) {
			wire.RejectUnread(w, r, openai.WriteError, errors.New("too large"))
		},
		"unread": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newConnections(0, 1000)
			all := conns(t, c.most+1)
			serve := c.handler(handler)
			body, rest := io.Pipe()
			for _, conn := range all[:c.most] {
				c.note(conn, http.StateNew)
				c.note(conn, http.StateActive)
				r := httptest.NewRequest(http.MethodPost, "/", body)
				go serve.ServeHTTP(httptest.NewRecorder(), r.WithContext(withConnection(r.Context(), conn)))
				synctest.Wait()
			}
			time.Sleep(grace)
			if slices.ContainsFunc(all, closed) {
				t.Errorf("%s: a connection was closed below the limit", name)
			}
			c.note(all[c.most], http.StateNew)
			if !closed(all[0]) || slices.ContainsFunc(all[1:], closed) {
				t.Errorf("%s: want the connection closed that has waited longest for its body", name)
			}
			_ = rest.Close()
			synctest.Wait()
			if len(c.at) != c.most {
				t.Errorf("%s: got %d connections without a request, want %d: a closed one is noted again", name, len(c.at), c.most)
			}
		})
	}
}

// TestAnswersToReadBodiesAreNotIdle: the connection of a request that was read is not closed while its answer is sent.
func TestAnswersToReadBodiesAreNotIdle(t *testing.T) {
	c := newConnections(0, 1000)
	conn := conns(t, 1)[0]
	c.note(conn, http.StateNew)
	c.note(conn, http.StateActive)
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
	c.handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	})).ServeHTTP(httptest.NewRecorder(), r.WithContext(withConnection(r.Context(), conn)))
	if len(c.at) != 0 {
		t.Error("the connection counts as one without a request")
	}
}

// TestIdleConnectionsTookAllDescriptors: with ulimit -n 64, clients that connect and send nothing left no file
// descriptor for others, until the header's timeout. The longest waiting connection makes room.
func TestIdleConnectionsTookAllDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnections(0, 2*8)
		all := conns(t, 10)
		for _, conn := range all[:8] {
			c.note(conn, http.StateNew)
		}
		c.note(all[0], http.StateActive)
		time.Sleep(grace)
		if slices.ContainsFunc(all, closed) {
			t.Error("a connection was closed at the limit, want it below")
		}
		c.note(all[8], http.StateNew)
		if closed(all[0]) || !closed(all[1]) || closed(all[2]) || closed(all[8]) {
			t.Error("want the connection closed that has waited longest, and the one with a request kept")
		}
		c.note(all[1], http.StateClosed)
		c.note(all[2], http.StateClosed)
		c.note(all[9], http.StateNew)
		if slices.ContainsFunc(all[3:], closed) {
			t.Error("closed connections still count")
		}
	})
}

// TestClientsBeyondTheDescriptorsWereReset: with ulimit -n 64, two thirds of 100 clients that sent a request each were
// reset, as new connections replaced those whose request was not read yet. They wait until others end.
func TestClientsBeyondTheDescriptorsWereReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnections(0, 2*8)
		all := conns(t, 10)
		for _, conn := range all[:8] {
			c.note(conn, http.StateNew)
		}
		ninth := accept(c, all[8])
		if ninth() {
			t.Fatal("a ninth of 8 connections is accepted at once, want it to wait")
		}
		for _, conn := range all[:8] {
			c.note(conn, http.StateActive)
		}
		time.Sleep(time.Hour)
		if ninth() || slices.ContainsFunc(all, closed) {
			t.Fatal("a ninth of 8 connections with requests is accepted, or one of them is closed")
		}
		c.note(all[0], http.StateIdle)
		if ninth() || closed(all[0]) {
			t.Fatal("a connection that ended its request just now is closed for a new one")
		}
		time.Sleep(grace)
		if !ninth() || !closed(all[0]) {
			t.Fatal("an idle connection does not make room")
		}
		c.note(all[0], http.StateClosed)
		c.note(all[8], http.StateActive)
		tenth := accept(c, all[9])
		if tenth() {
			t.Fatal("a tenth of 8 connections is accepted at once, want it to wait")
		}
		c.note(all[1], http.StateClosed)
		if !tenth() || slices.ContainsFunc(all[1:], closed) {
			t.Error("a connection that ends does not make room")
		}
	})
}

// TestAnswersMakeRoomForWaitingClients: a client that kept its connection for the next request kept others out.
func TestAnswersMakeRoomForWaitingClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnections(0, 2)
		handler := c.handler(http.NotFoundHandler())
		header := func() string {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			return w.Header().Get("Connection")
		}
		all := conns(t, 2)
		c.note(all[0], http.StateNew)
		c.note(all[0], http.StateActive)
		if got := header(); got != "" {
			t.Errorf("Connection: %s without waiting clients, want none", got)
		}
		second := accept(c, all[1])
		if second() || header() != "close" {
			t.Errorf("Connection: %q while a client waits, want close", header())
		}
		c.note(all[0], http.StateClosed)
		if !second() || header() != "" {
			t.Errorf("Connection: %q after that, want none", header())
		}
	})
}

// TestFewFileDescriptorsAreNamed: no message named the limit of open files before connections were refused.
func TestFewFileDescriptorsAreNamed(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	for _, c := range []struct{ files, want int }{{54, 1}, {1000, 0}} {
		var log bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		newConnections(0, c.files)
		if n := strings.Count(log.String(), "ulimit -n"); n != c.want {
			t.Errorf("%d more files: got log %q, want %d warnings that name ulimit -n", c.files, &log, c.want)
		}
	}
}
