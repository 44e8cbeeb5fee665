package responses

import (
	"strings"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// Functions may be grouped in a namespace, as Codex does with those of its agents and of MCP
// servers. Each is shown to the model as a function whose name starts with the namespace. Items
// have namespace and name in separate fields.
const typeNamespace = "namespace"

// A callee is a function that is called.
type callee struct {
	namespace string // "" if there is none
	name      string
}

// spaceMark separates a namespace and a name in the names that the model sees.
const spaceMark = "__"

// seen returns the function's name as the model sees it.
func (c callee) seen() string {
	switch {
	case c.namespace == "":
		return c.name
	case strings.HasSuffix(c.namespace, spaceMark):
		return c.namespace + c.name
	}
	return c.namespace + spaceMark + c.name
}

// callees has the functions of namespaces by the names that the model sees.
type callees map[string]callee

// of returns the function for a name that the model has called.
func (cs callees) of(seen string) callee {
	if c, ok := cs[seen]; ok {
		return c
	}
	return callee{name: seen}
}

// decodeNamespace decodes the functions of a namespace. The description of the first one starts
// with that of the namespace.
func (q *toolReader) decodeNamespace(in *wire.Fields) (t tool) {
	t.Type = typeNamespace
	required(in, "name", &t.Name)
	description := ""
	if in.Has("description") {
		t.Description = &description
		in.String("description", t.Description)
	}
	if !in.Has("tools") {
		in.Fail("tools", "Missing required parameter: {}.")
	}
	t.Tools = []tool{}
	if q.callees == nil {
		q.callees = callees{}
	}
	q.namespace = t.Name
	in.Objects("tools", "a list of functions", func(i int, f *wire.Fields) bool {
		intro := ""
		if i == 0 {
			intro = description
		}
		t.Tools = append(t.Tools, q.decode(f, intro))
		return true
	})
	q.namespace = ""
	return t
}

// A toolReader decodes the tools of a request into its conversation.
type toolReader struct {
	conversation *generate.Conversation
	callees      callees
	namespace    string // the namespace being decoded; "" if there is none
}
