package responses

import (
	"strings"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// Functions may be grouped under the name of a namespace, as Codex does with those of its agents and of MCP servers. The
// model sees each as a function of its own whose name begins with the namespace; items have the two apart.
const typeNamespace = "namespace"

// A callee is a function that is called.
type callee struct {
	namespace string // "" for none
	name      string
}

// spaceMark is between a namespace and a name in what the model sees.
const spaceMark = "__"

// seen is the function's name as the model sees it.
func (c callee) seen() string {
	switch {
	case c.namespace == "":
		return c.name
	case strings.HasSuffix(c.namespace, spaceMark):
		return c.namespace + c.name
	}
	return c.namespace + spaceMark + c.name
}

// callees are the functions of namespaces by the names that the model sees.
type callees map[string]callee

// of returns the function that the model calls by a name.
func (cs callees) of(seen string) callee {
	if c, ok := cs[seen]; ok {
		return c
	}
	return callee{name: seen}
}

// decodeNamespace reads the functions of a namespace. The first one's description begins with that of the namespace.
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

// A toolReader reads the tools of a request into its conversation.
type toolReader struct {
	conversation *generate.Conversation
	callees      callees
	namespace    string // that is read; "" for none
}
