package repl

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/term"
)

func TestAPipeJoinsLinesUpToACommand(t *testing.T) {
	in := NewPipe(strings.NewReader("a\n\nb /exit\n/usr/bin\n/stats\n/clear\n\n/set top_k 1\nc"))
	var got []string
	for {
		line, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, line)
	}
	if want := []string{"a\n\nb /exit\n/usr/bin", "/stats", "/clear", "/set top_k 1", "c"}; !slices.Equal(got, want) {
		t.Errorf("messages %q, want %q", got, want)
	}
}

// scripted is an editor whose lines are known; a line of a paste begins with "paste:".
type scripted struct {
	lines   []string
	prompts []string
}

func (s *scripted) SetPrompt(p string) { s.prompts = append(s.prompts, p) }
func (s *scripted) ReadLine() (string, error) {
	if len(s.lines) == 0 {
		return "", io.EOF
	}
	line := s.lines[0]
	s.lines = s.lines[1:]
	if text, ok := strings.CutPrefix(line, "paste:"); ok {
		return text, term.ErrPasteIndicator
	}
	return line, nil
}

func TestMessagesOfSeveralLines(t *testing.T) {
	for want, lines := range map[string][]string{
		"one":         {"one"},
		"a\nb":        {`a\`, "b"},
		"a\n\nb":      {`"""a`, "", `b"""`},
		"x\n y\nz":    {`"""`, "x", " y", "z", `"""`},
		"in one":      {`"""in one"""`},
		"p\nq\nthen":  {"paste:p", "paste:q", "then"},
		"/exit\nnot":  {"paste:/exit", "not"},
		"keep\\ this": {`keep\ this`},
	} {
		got, err := readMessage(&scripted{lines: lines})
		if err != nil || got != want {
			t.Errorf("%q is %q, %v; want %q", lines, got, err, want)
		}
	}
	if _, err := readMessage(&scripted{lines: []string{`a\`}}); !errors.Is(err, io.EOF) {
		t.Errorf("the end within a message: %v", err)
	}
}

// TestControlCEmptiesTheLine: the editor would take it for the end of the input.
func TestControlCEmptiesTheLine(t *testing.T) {
	var out strings.Builder
	e := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{clearOnInterrupt{strings.NewReader("wrong\x1b[D\x1b[D\x03right\r")}, &out}, "> ")
	if line, err := e.ReadLine(); line != "right" || err != nil {
		t.Errorf("the line is %q, %v", line, err)
	}
}

// TestALongPastedLineWasCut: the editor drops what is beyond 4096 characters, and the rest was sent as if it
// were the whole message.
func TestALongPastedLineWasCut(t *testing.T) {
	var out strings.Builder
	e := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{strings.NewReader("\x1b[200~a\n" + strings.Repeat("x", 5000) + "\x1b[201~\rshort\r"), &out}, "> ")
	if message, err := readMessage(e); !errors.Is(err, errCut) {
		t.Errorf("a message of %d bytes, %v; want %v", len(message), err, errCut)
	}
	if message, err := readMessage(e); message != "short" || err != nil {
		t.Errorf("the next message is %q, %v", message, err)
	}
}

// TestALongLineOfAHistoryEndedTheNextChat: a pasted line of more than 1 MiB was written to the file,
// and the next chat did not start because of it.
func TestALongLineOfAHistoryEndedTheNextChat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	h, err := OpenHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	h.Add("short")
	h.Add(strings.Repeat("x", 2<<20))
	if h.Len() != 2 {
		t.Errorf("got %d lines in memory, want 2", h.Len())
	}
	if h, err = OpenHistory(path); err != nil || h.Len() != 1 || h.At(0) != "short" {
		t.Errorf("got %+v, %v; want the short line", h, err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("y", 2<<20)+"\nlast\n"), 0o600); err != nil { // as older chats wrote
		t.Fatal(err)
	}
	if h, err = OpenHistory(path); err != nil || h.At(0) != "last" {
		t.Errorf("got %v, want the last line", err)
	}
}

func TestAHistoryIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "history")
	h, err := OpenHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2*mostHistory + 10 {
		h.Add(strconv.Itoa(i))
	}
	for _, line := range []string{"same", "same", "  ", "last"} {
		h.Add(line)
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
	again, err := OpenHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	if again.Len() != mostHistory || again.At(0) != "last" || again.At(1) != "same" || again.At(2) != strconv.Itoa(2*mostHistory+9) {
		t.Errorf("%d lines, the last are %q, %q, %q", again.Len(), again.At(0), again.At(1), again.At(2))
	}
	b, err := os.ReadFile(path)
	if lines := strings.Count(string(b), "\n"); err != nil || lines != mostHistory {
		t.Errorf("the file has %d lines after opening, want %d: %v", lines, mostHistory, err)
	}
}
