package repl

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"
)

// An Input reads what the user says. Interactive reports whether a person types it.
type Input interface {
	// Read returns the next message or command; io.EOF ends the input.
	Read() (string, error)
	Interactive() bool
	Close() error
}

// isCommand reports whether a line of a pipe is a command and not text, such as a path.
func isCommand(line string) bool {
	name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	return find(name) != nil
}

// A pipe reads messages from something that is not a terminal: all lines up to a command or the end are
// one message.
type pipe struct {
	lines *bufio.Reader
	next  string // a command that ended a message
}

// NewPipe returns the input of r.
func NewPipe(r io.Reader) Input { return &pipe{lines: bufio.NewReader(r)} }

func (p *pipe) Interactive() bool { return false }
func (p *pipe) Close() error      { return nil }

// Read implements Input.
func (p *pipe) Read() (string, error) {
	if next := p.next; next != "" {
		p.next = ""
		return next, nil
	}
	var text strings.Builder
	for {
		line, err := p.lines.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		if isCommand(line) {
			if strings.TrimSpace(text.String()) == "" {
				return strings.TrimSpace(line), nil
			}
			p.next = strings.TrimSpace(line)
			return strings.TrimSpace(text.String()), nil
		}
		text.WriteString(line)
		if err == nil {
			continue
		}
		if message := strings.TrimSpace(text.String()); message != "" {
			return message, nil
		}
		return "", io.EOF
	}
}

// A console reads from a terminal, with editing, history and paste. The terminal is in raw mode only
// while it reads, so that Ctrl-C sends a signal at all other times.
type console struct {
	in     *os.File
	out    *os.File // the terminal whose size counts
	editor *term.Terminal
	prompt string

	mu  sync.Mutex  // a signal may close the console while it reads
	raw *term.State // to return to; nil while the terminal is as the shell left it
}

// NewConsole returns the input of the terminal in, echoed to out. The editor keeps lines in h; nil keeps
// those of this session.
func NewConsole(in, out *os.File, prompt string, h *History) Input {
	c := &console{in: in, out: out, prompt: prompt}
	c.editor = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{clearOnInterrupt{in}, out}, prompt)
	if h != nil {
		c.editor.History = h
	}
	return c
}

// fit adapts the editor to the size of the terminal.
func (c *console) fit() {
	if width, height, err := term.GetSize(int(c.out.Fd())); err == nil && width > 0 {
		_ = c.editor.SetSize(width, height) // it redraws, which may fail as the terminal may be gone
	}
}

// IsTerminal reports whether f is one.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

func (c *console) Interactive() bool { return true }

// Close returns the terminal to the state in which the shell left it.
func (c *console) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.raw == nil {
		return nil
	}
	raw := c.raw
	c.raw = nil
	return term.Restore(int(c.in.Fd()), raw)
}

func (c *console) makeRaw() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw, err = term.MakeRaw(int(c.in.Fd()))
	return err
}

// block begins and ends a message of several lines.
const block = `"""`

// Read implements Input. A message goes on in the next line after a backslash, between lines of """, and
// while lines are pasted.
func (c *console) Read() (string, error) {
	if err := c.makeRaw(); err != nil {
		return "", err
	}
	defer c.Close()
	defer onResize(c.fit)()
	c.fit()
	c.editor.SetBracketedPasteMode(true)
	defer c.editor.SetBracketedPasteMode(false)
	defer c.editor.SetPrompt(c.prompt)
	for {
		message, err := readMessage(c.editor)
		if !errors.Is(err, errCut) {
			return message, err
		}
		c.editor.SetPrompt(c.prompt)
		fmt.Fprintf(c.editor, "error: %v\n", err)
	}
}

// editor is what readMessage needs of a terminal.
type editor interface {
	ReadLine() (string, error)
	SetPrompt(string)
}

// maxLine is the number of characters at which the editor drops the rest of a line.
const maxLine = 4096

var errCut = fmt.Errorf("the message was not sent: a line has %d characters or more, which a terminal cannot take; put it into a file and use `serve chat <FILE`", maxLine)

// measured is an editor that notes whether it has dropped a part of a line.
type measured struct {
	editor
	cut bool
}

func (m *measured) ReadLine() (string, error) {
	line, err := m.editor.ReadLine()
	m.cut = m.cut || utf8.RuneCountInString(line) >= maxLine
	return line, err
}

// readMessage reads lines until a message is whole. It returns errCut if the editor has dropped a
// part of it.
func readMessage(e editor) (string, error) {
	m := &measured{editor: e}
	message, err := readLines(m)
	if err == nil && m.cut {
		return "", errCut
	}
	return message, err
}

func readLines(e editor) (string, error) {
	var lines []string
	inBlock := false
	for {
		line, err := e.ReadLine()
		pasted := errors.Is(err, term.ErrPasteIndicator)
		if err != nil && !pasted {
			return "", err
		}
		e.SetPrompt("… ")
		trimmed := strings.TrimSpace(line)
		switch {
		case inBlock && strings.HasSuffix(trimmed, block):
			lines = append(lines, strings.TrimSuffix(trimmed, block))
			return strings.TrimSpace(strings.Join(lines, "\n")), nil
		case inBlock, pasted:
			lines = append(lines, line)
		case len(lines) == 0 && strings.HasPrefix(trimmed, block):
			rest := strings.TrimPrefix(trimmed, block)
			if text, whole := strings.CutSuffix(rest, block); whole {
				return strings.TrimSpace(text), nil
			}
			inBlock, lines = true, append(lines, rest)
		case strings.HasSuffix(line, `\`):
			lines = append(lines, strings.TrimSuffix(line, `\`))
		default:
			return strings.TrimSpace(strings.Join(append(lines, line), "\n")), nil
		}
	}
}

// clearOnInterrupt turns Ctrl-C, which would end the editor, into the keys that empty the line.
type clearOnInterrupt struct{ io.Reader }

const ctrlC, ctrlE, ctrlU = 3, 5, 21

func (r clearOnInterrupt) Read(p []byte) (int, error) {
	if len(p) < 2 {
		return r.Reader.Read(p)
	}
	n, err := r.Reader.Read(p[:len(p)/2])
	var out []byte
	for _, b := range p[:n] {
		if b == ctrlC {
			out = append(out, ctrlE, ctrlU)
			continue
		}
		out = append(out, b)
	}
	return copy(p, out), err
}
