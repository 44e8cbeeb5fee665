package api

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestIdleConnectionsAreBounded: thousands of connections without a request took memory that no
// plan counted.
func TestIdleConnectionsAreBounded(t *testing.T) {
	c := newConnections(0, 1000)
	var conns []net.Conn
	for range c.most + 3 {
		a, b := net.Pipe()
		defer b.Close()
		conns = append(conns, a)
	}
	closed := func(conn net.Conn) bool {
		return conn.SetDeadline(time.Time{}) != nil
	}
	for _, conn := range conns[:c.most] {
		c.note(conn, http.StateNew)
	}
	c.note(conns[0], http.StateActive) // has a request and is not counted
	c.note(conns[c.most], http.StateNew)
	if closed(conns[0]) || closed(conns[1]) {
		t.Error("a connection was closed below the limit")
	}
	c.note(conns[c.most+1], http.StateNew)
	if closed(conns[0]) || !closed(conns[1]) || closed(conns[2]) {
		t.Error("want the connection closed that has waited longest without a request")
	}
	c.note(conns[0], http.StateIdle)
	if closed(conns[0]) || !closed(conns[2]) {
		t.Error("want the idle connection kept, and the longest waiting one closed")
	}
	c.note(conns[3], http.StateClosed)
	c.note(conns[c.most+2], http.StateNew)
	if closed(conns[4]) {
		t.Error("a closed connection is still counted")
	}
	if n := newConnections(144<<20, 1000).most; n != 576 {
		t.Errorf("144 MiB for requests allow %d connections without a request, want 576", n)
	}
}

// TestIdleConnectionsTookAllDescriptors: with ulimit -n 64, clients that connect and send nothing left no file
// descriptor for others, until the header's timeout. The longest waiting connection makes room.
func TestIdleConnectionsTookAllDescriptors(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	c := newConnections(0, 2*8)
	var conns []net.Conn
	for range 10 {
		a, b := net.Pipe()
		defer b.Close()
		conns = append(conns, a)
	}
	closed := func(conn net.Conn) bool {
		return conn.SetDeadline(time.Time{}) != nil
	}
	for _, conn := range conns[:8] {
		c.note(conn, http.StateNew)
	}
	c.note(conns[0], http.StateActive)
	if slices.ContainsFunc(conns[:8], closed) || log.Len() > 0 {
		t.Errorf("a connection was closed at the limit, want it below; got log %s", &log)
	}
	c.note(conns[8], http.StateNew)
	if n := strings.Count(log.String(), "ulimit -n"); n != 1 {
		t.Errorf("got log %q, want one warning that names ulimit -n", &log)
	}
	if closed(conns[0]) || !closed(conns[1]) || closed(conns[2]) || closed(conns[8]) {
		t.Error("want the connection closed that has waited longest, and the one with a request kept")
	}
	c.note(conns[1], http.StateClosed)
	c.note(conns[2], http.StateClosed)
	c.note(conns[9], http.StateNew)
	if n := strings.Count(log.String(), "ulimit -n"); n != 1 {
		t.Errorf("got %d warnings, want one", n)
	}
	if slices.ContainsFunc(conns[3:], closed) {
		t.Error("closed connections still count")
	}
}
