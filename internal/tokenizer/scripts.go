package tokenizer

import (
	"slices"
	"strconv"
	"strings"
	"sync"
)

// scripts cuts where the script of characters changes. A character without one, such as a space, belongs to the word before
// it; before the first word it is left out.
type scripts struct{}

func (scripts) cut(p piece, emit func(piece) error) error {
	start, last := -1, -1
	for i, r := range p.s {
		script := scriptOf(r)
		if script < 0 || script == last {
			continue
		}
		if start >= 0 {
			if err := emit(p.cut(start, i)); err != nil {
				return err
			}
		}
		start, last = i, script
	}
	if start < 0 {
		return nil
	}
	return emit(p.cut(start, len(p.s)))
}

// scriptRange are characters of one script.
type scriptRange struct {
	runeRange
	script int
}

// scriptRanges has the scripts of unicode.txt in order.
var scriptRanges = sync.OnceValue(func() []scriptRange {
	_, list, _ := strings.Cut(unicodeSets, "\ntoken-scripts: ")
	list, _, _ = strings.Cut(list, "\n")
	var all []scriptRange
	for field := range strings.FieldsSeq(list) { // lo-hi/script
		lo, rest, _ := strings.Cut(field, "-")
		hi, number, _ := strings.Cut(rest, "/")
		script, _ := strconv.Atoi(number) // the file is ours
		all = append(all, scriptRange{runeRange{fromHex(lo), fromHex(hi)}, script})
	}
	return all
})

// scriptOf returns the number of r's script as the reference has it, with kana as Han, or -1 where it has none.
func scriptOf(r rune) int {
	all := scriptRanges()
	at, found := slices.BinarySearchFunc(all, r, func(s scriptRange, r rune) int {
		switch {
		case s.hi < r:
			return -1
		case s.lo > r:
			return 1
		}
		return 0
	})
	if !found {
		return -1
	}
	return all[at].script
}
