package tokenizer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/smallfile"
)

// earlyBPE is what is read of a BPE in one pass over the file, without stepping over its members first: nine
// tenths of the largest files are merges.
type earlyBPE struct {
	*bpe
	merges []merge
}

// errLate says that a member behind the merges changes what they mean, or that a member is given twice.
var errLate = errors.New("a member of the model follows too late")

// source is the text of a tokenizer.json while it is parsed.
type source struct {
	data []byte
	// early says that merges are read in place where that is possible. After any error the text is
	// to be read again without it: then errors are those of the file's order.
	early bool
	// done, if it is not nil, is called with parts of data that are not needed any more.
	done func(part []byte)
}

// readEarly reads the merges at s if the members before them say what they mean. ok is false if they do not.
func (src *source) readEarly(spec modelSpec, s *scanner) (early *earlyBPE, ok bool, err error) {
	if !src.early || s.Peek() != '[' || string(spec["type"].raw) != `"BPE"` {
		return nil, false, nil
	}
	words := spec.scan("vocab")
	if words == nil || words.Peek() != '{' {
		return nil, false, nil
	}
	early = &earlyBPE{bpe: &bpe{}}
	if early.prefix, err = spec.str("continuing_subword_prefix"); err != nil {
		return nil, false, err
	}
	if early.vocab, err = parseVocab(words); err != nil {
		return nil, false, err
	}
	src.release(words.Text)
	at := s.Pos
	early.merges, err = early.mergeList(s, len(s.Text)-s.Pos, func(to int) {
		src.release(s.Text[at:to])
		at = to
	})
	return early, err == nil, err
}

func (src *source) release(part []byte) {
	if src.done != nil {
		src.done(part)
	}
}

// loadFile reads and parses tokenizer.json. A large one is read into memory that the system gets back while it is
// parsed.
func loadFile(fsys fs.FS) (*Tokenizer, error) {
	if t, err := loadEarly(fsys); t != nil || err != nil {
		return t, err
	}
	data, err := smallfile.ReadFS(fsys, FileName, smallfile.Tokenizer)
	if err != nil {
		return nil, err
	}
	t, err := parse(&source{data: data})
	if err != nil {
		return nil, &parseError{err}
	}
	return t, nil
}

// parseError is the error of a file that was read.
type parseError struct{ error }

func (e *parseError) Unwrap() error { return e.error }

// earlyFile is the size from which a file is read into memory of its own.
const earlyFile = 1 << 20

// loadEarly returns nil, nil for a file that is to be read and parsed as others are.
func loadEarly(fsys fs.FS) (*Tokenizer, error) {
	info, err := fs.Stat(fsys, FileName)
	if err != nil || !info.Mode().IsRegular() || info.Size() < earlyFile || info.Size() > smallfile.Tokenizer {
		return nil, nil
	}
	f, err := fsys.Open(FileName)
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	block, err := hostmem.Alloc(nil, hostmem.Other, int(info.Size()))
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	defer block.Release()
	data := block.Bytes()
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, nil
	}
	if n, err := f.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		return nil, nil // it has grown
	}
	t, err := parse(&source{data: data, early: true, done: func(part []byte) { hostmem.Discard(part) }})
	if err != nil {
		return nil, nil
	}
	return t, nil
}
