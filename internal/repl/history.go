package repl

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/smallfile"
)

// mostHistory is how many lines a history keeps.
const mostHistory = 1000

// Limits of the file: longer lines are kept in memory only.
const (
	maxHistoryLine = 64 << 10
	maxHistory     = 2 * (mostHistory + 1) * maxHistoryLine
)

// A History keeps the lines that were typed, in a file that only its owner may read. It implements
// term.History. A line that cannot be written stays in memory.
type History struct {
	path  string
	lines []string // the oldest first
}

// OpenHistory reads the history in the file at path, which need not exist.
func OpenHistory(path string) (*History, error) {
	b, err := smallfile.Read(path, maxHistory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("history: %w", err)
	}
	h := &History{path: path}
	for line := range bytes.Lines(b) {
		h.add(strings.TrimRight(string(line), "\r\n"))
	}
	if bytes.Count(b, []byte("\n")) > 2*mostHistory {
		if err := atomicfile.WriteFile(path, []byte(strings.Join(h.lines, "\n")+"\n")); err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
		_ = os.Chmod(path, 0o600) // not on every system
	}
	return h, nil
}

func (h *History) add(line string) bool {
	if strings.TrimSpace(line) == "" || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return false
	}
	h.lines = append(h.lines, line)
	h.lines = h.lines[max(0, len(h.lines)-mostHistory):]
	return true
}

// Add appends a line, unless it is empty or the same as the last one.
func (h *History) Add(line string) {
	if !h.add(line) || strings.ContainsAny(line, "\r\n") || len(line) > maxHistoryLine {
		return
	}
	if info, err := os.Stat(h.path); err == nil && !info.Mode().IsRegular() {
		return
	}
	_ = os.MkdirAll(filepath.Dir(h.path), 0o700) // OpenFile fails too then
	f, err := os.OpenFile(h.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString(line + "\n") // the line is in memory
	_ = f.Close()
}

// Len returns the number of lines.
func (h *History) Len() int { return len(h.lines) }

// At returns a line; 0 is the newest.
func (h *History) At(i int) string { return h.lines[len(h.lines)-1-i] }
