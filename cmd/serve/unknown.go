package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/spelling"
)

// isWord reports whether a model's name could be a mistyped command: it is neither a path nor a
// name with an organisation.
func isWord(m string) bool {
	return m != "" && !strings.ContainsAny(m, `/\.@:`)
}

// unknownCommand returns the error for a word that is neither a command nor a model.
func unknownCommand(word string, commands []*kong.Node) error {
	names := make([]string, 0, len(commands))
	meant := map[string]string{"help": "help"} // the command of each name
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		names = append(names, c.Name)
		for _, name := range append([]string{c.Name}, c.Aliases...) {
			meant[name] = c.Name
		}
	}
	closest, distance := "", 3 // three or more edits are not a misspelling
	for _, name := range slices.Sorted(maps.Keys(meant)) {
		if d := spelling.Distance(word, name, distance); d < distance {
			closest, distance = meant[name], d
		}
	}
	advice := "the commands are " + strings.Join(names, ", ")
	if closest != "" {
		advice = "did you mean " + closest + "?"
	}
	return cmdline.Misusef("unknown command %q: %s (and no model folder has that name)", word, advice)
}
