package foreign

import "strings"

// A Row is a row as tests see it.
type Row struct {
	On                Endpoints
	Names, Known, Why string
}

// The tables, for tests of the endpoints, which import this package.
var (
	UnsupportedIn = unsupportedIn
	Unsupported   = shown(unsupported)
	Ignored       = shown(ignored)
)

func shown(table []row) []Row {
	var rows []Row
	for _, r := range table {
		rows = append(rows, Row{r.on, r.names, r.known, r.why})
	}
	return rows
}

// String names the endpoints for docs/parameters.md.
func (e Endpoints) String() string {
	var names []string
	for i, name := range []string{"completions", "chat", "embeddings", "tokenize", "detokenize", "responses", "apply-template", "messages"} {
		if e&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
