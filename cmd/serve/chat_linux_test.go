package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A tty is a program on a pseudo-terminal.
type tty struct {
	t     *testing.T
	ours  *os.File
	slave *os.File
	cmd   *exec.Cmd

	mu   sync.Mutex
	seen strings.Builder
}

// onTTY runs serve with args on a terminal.
func onTTY(t *testing.T, args ...string) *tty {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("there are no pseudo-terminals here: ", err)
	}
	t.Cleanup(func() { ours.Close() })
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	p := &tty{t: t, ours: ours, slave: slave, cmd: exec.CommandContext(t.Context(), executable(t), append([]string{underTest}, args...)...)}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := ours.Read(b)
			p.mu.Lock()
			p.seen.Write(b[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return p
}

func (p *tty) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.String()
}

// await waits until the terminal shows a text after what it has shown at from, and returns where it is.
func (p *tty) await(from int, text string) int {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if at := strings.Index(p.text()[from:], text); at >= 0 {
			return from + at + len(text)
		}
	}
	p.t.Fatalf("the terminal never shows %q: %q", text, p.text()[from:])
	return 0
}

func (p *tty) keys(text string) {
	p.t.Helper()
	if _, err := p.ours.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
}

// TestChatOnATerminal: editing, history, Ctrl-C at the prompt, and Ctrl-D. The terminal
// is left as it was.
func TestChatOnATerminal(t *testing.T) {
	history := filepath.Join(t.TempDir(), "history")
	p := onTTY(t, "chat", "--threads", "1", "--history", history)
	at := p.await(0, "/help lists commands")
	at = p.await(at, "> ")
	p.keys("/set temperature 0\r")
	at = p.await(at, "> ")
	p.keys("wrong\x03What is Heft?\r")
	at = p.await(at, "> ")
	first := p.text()
	p.keys("/set max_tokens 1000\r")
	at = p.await(at, "> ")
	p.keys("/set ignore 1\r")
	at = p.await(at, "error: /set: got")
	at = p.await(at, "> ")
	p.keys("\x1b[A\x1b[A\x1b[A\x1b[B\x15/stats\r") // through the history, then another line
	at = p.await(at, "tokens of the context used")
	p.await(at, "> ")
	p.keys("\x04")
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("Ctrl-D: %v", err)
	}
	if !strings.Contains(first, "Heft") {
		t.Errorf("the terminal shows %q", first)
	}
	after, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil || after.Lflag&unix.ICANON == 0 || after.Lflag&unix.ECHO == 0 {
		t.Errorf("the terminal stays raw: %v, %v", after, err)
	}
	if b, err := os.ReadFile(history); err != nil || !strings.Contains(string(b), "What is Heft?\n") || strings.Contains(string(b), "wrong") {
		t.Errorf("the history is %q, %v", b, err)
	}
}

// TestAResizedTerminalGarbledTheLine: the editor kept the width that the terminal had at the start, so keys that move
// in a wrapped line drew it in wrong places.
func TestAResizedTerminalGarbledTheLine(t *testing.T) {
	p := onTTY(t, "chat", "--threads", "1", "--history", "none")
	at := p.await(p.await(0, "/help lists commands"), "> ")
	resize := func(columns uint16) {
		if err := unix.IoctlSetWinsize(int(p.ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
			t.Fatal(err)
		}
	}
	resize(20)
	p.keys("/stats\r") // the next line begins with the new size
	at = p.await(p.await(at, "no answer"), "> ")
	p.keys(strings.Repeat("x", 30) + "\x01") // to the first column, one line up
	at = p.await(at, "\x1b[A")
	resize(50) // drawn again in one line, within the line
	p.await(at, "> "+strings.Repeat("x", 30))
	p.keys("\x15\x05\x15\x04")
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("Ctrl-D: %v", err)
	}
}

// TestControlCStopsTheAnswer and not the program, which then takes the next message. SIGTERM ends it and
// leaves the terminal as it was.
func TestControlCStopsTheAnswer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprint(w, `{"data": [{"id": "slow"}]}`)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, "data: {\"choices\": [{\"delta\": {\"content\": \"Once upon\"}}]}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	p := onTTY(t, "chat", "--url", s.URL, "--history", "none")
	at := p.await(0, "> ")
	for range 2 {
		p.keys("A story\r")
		at = p.await(at, "Once upon")
		p.keys("\x03")
		at = p.await(at, "stopped")
		at = p.await(at, "> ")
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait() // its status follows
	if status := p.cmd.ProcessState.ExitCode(); status != 143 {
		t.Errorf("after SIGTERM the status is %d, want 143", status)
	}
	after, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil || after.Lflag&unix.ICANON == 0 || after.Lflag&unix.ECHO == 0 {
		t.Errorf("the terminal stays raw: %v, %v", after, err)
	}
}
