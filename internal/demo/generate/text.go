package main

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
)

// The texts that the demo model learns, in the form that [parse] reads.
//
//go:embed text/*.txt
var texts embed.FS

// A turn has several questions and several answers to them, which are all equally good.
type turn struct{ questions, answers []string }

// A talk is a sequence of turns.
type talk []turn

// parse reads talks: blocks of lines separated by empty lines. "Q:" begins a turn with questions
// separated by " | ". Each "A:" after it is an answer. Text before the first block of a file is a
// comment.
func parse(name, text string) ([]talk, error) {
	var talks []talk
	fresh := true
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		kind, rest, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			fresh = true
		case kind == "Q":
			if fresh {
				talks = append(talks, nil)
			}
			t := &talks[len(talks)-1]
			*t = append(*t, turn{questions: strings.Split(rest, " | ")})
			fresh = false
		case kind == "A" && !fresh:
			t := talks[len(talks)-1]
			t[len(t)-1].answers = append(t[len(t)-1].answers, rest)
		case len(talks) > 0:
			return nil, fmt.Errorf("%s:%d: got %q, want a line that begins with Q or A and a colon", name, i+1, line)
		}
	}
	for _, t := range talks {
		for _, u := range t {
			if len(u.answers) == 0 {
				return nil, fmt.Errorf("%s: no answer to %q", name, u.questions[0])
			}
		}
	}
	return talks, nil
}

// read parses all texts in the order of their names. sum is a checksum of them.
func read() (talks []talk, sum string, err error) {
	names, err := fs.Glob(texts, "text/*.txt")
	if err != nil {
		return nil, "", err
	}
	h := sha256.New()
	for _, name := range names {
		b, err := texts.ReadFile(name)
		if err != nil {
			return nil, "", err
		}
		h.Write(b)
		more, err := parse(name, string(b))
		if err != nil {
			return nil, "", err
		}
		talks = append(talks, more...)
	}
	return talks, hex.EncodeToString(h.Sum(nil)), nil
}

// spoken returns all questions and answers of talks, for the vocabulary.
func spoken(talks []talk) string {
	var b strings.Builder
	for _, t := range talks {
		for _, u := range t {
			for _, list := range [][]string{u.questions, u.answers} {
				for _, s := range list {
					b.WriteString(s)
					b.WriteByte('\n')
				}
			}
		}
	}
	return b.String()
}
