package batches

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// results is a file of results. Each result is a line that is appended.
type results struct {
	file    *os.File
	size    int64
	reserve func(n int64) error // reserves room before the file grows; nil: there is no limit
}

// openResults opens the file at path, and creates it if it does not exist.
func openResults(path string, reserve func(int64) error) (*results, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("batches: %w", err)
	}
	return &results{file: f, reserve: reserve}, nil
}

// recover reads the results of the batch called name that an earlier process has written. It calls
// seen with the number of each result's line, and truncates the file after the last complete
// result. Its memory does not depend on the length of lines.
func (r *results) recover(name string, seen func(int)) (count int, err error) {
	in := bufio.NewReaderSize(r.file, lineBuffer)
	want := []byte(prefix(name))
	var end, at int64
	number, begins := 0, true
	for {
		piece, err := in.ReadSlice('\n')
		at += int64(len(piece))
		if begins {
			if number = numberOf(piece, want); number == 0 {
				break
			}
		}
		begins = err == nil
		if begins {
			seen(number)
			count++
			end = at
			continue
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("batches: %w", err)
		}
		break
	}
	if err := r.file.Truncate(end); err != nil {
		return 0, fmt.Errorf("batches: %w", err)
	}
	r.size = end
	if r.reserve != nil {
		if err := r.reserve(end); err != nil {
			return 0, err
		}
	}
	_, err = r.file.Seek(end, io.SeekStart)
	return count, err
}

// numberOf returns the line number of the result that starts with piece, or 0 if piece is not the
// start of a result.
func numberOf(piece, prefix []byte) int {
	digits, ok := bytes.CutPrefix(piece, prefix)
	end := bytes.IndexByte(digits, '"')
	if !ok || end < 0 {
		return 0
	}
	n, err := strconv.Atoi(string(digits[:end]))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// append writes one result with a single write, so that a killed process leaves at most one
// incomplete result.
func (r *results) append(what result) error {
	var line bytes.Buffer
	out := json.NewEncoder(&line) // Encode ends the line with a newline
	out.SetEscapeHTML(false)
	if err := out.Encode(what); err != nil {
		return fmt.Errorf("batches: %w", err)
	}
	b := line.Bytes()
	if r.reserve != nil {
		if err := r.reserve(int64(len(b))); err != nil {
			return err
		}
	}
	n, err := r.file.Write(b)
	if err != nil {
		if n > 0 {
			_ = r.file.Truncate(r.size)
			_, _ = r.file.Seek(r.size, io.SeekStart)
		}
		return fmt.Errorf("batches: %w", err)
	}
	r.size += int64(n)
	return nil
}

// close syncs and closes the file.
func (r *results) close() error {
	err := r.file.Sync()
	return errors.Join(err, r.file.Close())
}
