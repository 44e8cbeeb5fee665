package jinja

// The tree the parser makes. Names are not resolved yet; see symbols.go.

type (
	// expr is an expression.
	expr interface{ exprLine() int }
	// stmt is a statement.
	stmt interface{ stmtLine() int }

	pos int // the line a node starts on
)

func (p pos) exprLine() int { return int(p) }
func (p pos) stmtLine() int { return int(p) }

// Expressions.
type (
	constExpr struct {
		pos
		value Value
	}
	// dataExpr is the text between tags.
	dataExpr struct {
		pos
		text string
	}
	nameExpr struct {
		pos
		name string
	}
	// nsRef is `name.attr` as the target of an assignment.
	nsRef struct {
		pos
		name, attr string
	}
	tupleExpr struct {
		pos
		items []expr
	}
	listExpr struct {
		pos
		items []expr
	}
	dictExpr struct {
		pos
		keys, values []expr
	}
	unaryExpr struct {
		pos
		op string // "-", "+", "not"
		x  expr
	}
	binaryExpr struct {
		pos
		op   string // arithmetic, "and", "or"
		x, y expr
	}
	concatExpr struct {
		pos
		items []expr
	}
	compareExpr struct {
		pos
		first expr
		ops   []string
		rest  []expr
	}
	// condExpr is `then if test else other`; other may be nil.
	condExpr struct {
		pos
		test, then, other expr
	}
	attrExpr struct {
		pos
		x    expr
		name string
	}
	itemExpr struct {
		pos
		x, index expr
	}
	// sliceExpr is `start:stop:step` inside brackets; each may be nil.
	sliceExpr struct {
		pos
		start, stop, step expr
	}
	callExpr struct {
		pos
		fn   expr
		args callArgs
	}
	// filterExpr is `x | name(args)`; x is nil for the output of a block.
	filterExpr struct {
		pos
		x    expr
		name string
		args callArgs
	}
	testExpr struct {
		pos
		x    expr
		name string
		args callArgs
	}
)

// callArgs is the arguments of a call, filter or test.
type callArgs struct {
	args       []expr
	names      []string // of keyword arguments
	values     []expr
	star, dict expr // *star, **dict, or nil
}

// Statements.
type (
	outputStmt struct {
		pos
		items []expr
	}
	ifStmt struct {
		pos
		test  expr
		body  []stmt
		elifs []*ifStmt
		other []stmt
	}
	forStmt struct {
		pos
		target    expr
		iter      expr
		test      expr
		recursive bool
		body      []stmt
		other     []stmt
	}
	setStmt struct {
		pos
		target, value expr
	}
	// setBlockStmt is `{% set x %}...{% endset %}`; filter may be nil.
	setBlockStmt struct {
		pos
		target expr
		filter *filterExpr
		body   []stmt
	}
	macroStmt struct {
		pos
		macroDef
	}
	callStmt struct {
		pos
		macroDef
		call *callExpr
	}
	generationStmt struct {
		pos
		macroDef
	}
	filterStmt struct {
		pos
		filter *filterExpr
		body   []stmt
	}
	withStmt struct {
		pos
		targets, values []expr
		body            []stmt
	}
	autoescapeStmt struct {
		pos
		option expr
		body   []stmt
	}
	blockStmt struct {
		pos
		name   string
		scoped bool
		body   []stmt
	}
	loopControl struct {
		pos
		isBreak bool
	}
	// templateStmt is include, import, from or extends: there is only one template.
	templateStmt struct {
		pos
		tag string
	}
)

// macroDef is the signature and body of a macro, a call block or a generation
// block. The last len(defaults) params have defaults.
type macroDef struct {
	name     string
	params   []string
	defaults []expr
	body     []stmt
}
