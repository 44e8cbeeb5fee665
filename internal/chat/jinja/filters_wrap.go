package jinja

func filterWordWrap(st *state, v Value, c *args) (Value, error) { return nil, typeErrorf("wordwrap") }
func filterURLize(st *state, v Value, c *args) (Value, error)   { return nil, typeErrorf("urlize") }
func filterPPrint(st *state, v Value, c *args) (Value, error)   { return nil, typeErrorf("pprint") }
