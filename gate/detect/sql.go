package detect

import "strings"

// sqlReader reads SQL statements for those that lose or change data for good.
type sqlReader struct{}

func (sqlReader) read(r *run, t text) {
	for _, st := range sqlStatements(t.s) {
		r.step(1 + len(st))
		if rule := judgeSQL(st); rule != "" {
			r.report(rule, t.at, strings.Join(st[:min(len(st), 6)], " "))
		}
	}
}

// sqlStatements splits a text into statements and these into upper-case words;
// strings and comments are left out, names in quotes are kept without them.
func sqlStatements(t string) [][]string {
	var all [][]string
	var cur []string
	for i := 0; i < len(t); {
		ch := t[i]
		switch {
		case ch == '\'':
			j := i + 1
			for j < len(t) && (t[j] != '\'' || j+1 < len(t) && t[j+1] == '\'') {
				if t[j] == '\'' || t[j] == '\\' && j+1 < len(t) {
					j++
				}
				j++
			}
			cur = append(cur, "''")
			i = j + 1
		case ch == '"' || ch == '`':
			j := strings.IndexByte(t[i+1:], ch)
			if j < 0 {
				j = len(t) - i - 1
			}
			cur = append(cur, t[i+1:i+1+j])
			i += j + 2
		case strings.HasPrefix(t[i:], "--") || ch == '#':
			j := strings.IndexByte(t[i:], '\n')
			if j < 0 {
				j = len(t) - i
			}
			i += j
		case strings.HasPrefix(t[i:], "/*!"): // MySQL runs what is inside
			for i += 3; i < len(t) && t[i] >= '0' && t[i] <= '9'; {
				i++
			}
		case strings.HasPrefix(t[i:], "*/"):
			i += 2
		case strings.HasPrefix(t[i:], "/*"):
			j := strings.Index(t[i+2:], "*/")
			if j < 0 {
				j = len(t) - i - 2
			}
			i += j + 4
		case ch == ';':
			if len(cur) > 0 {
				all = append(all, cur)
			}
			cur = nil
			i++
		case ch == '\\' && len(cur) == 0: // psql's own commands
			j := strings.IndexByte(t[i:], '\n')
			if j < 0 {
				j = len(t) - i
			}
			if strings.HasPrefix(t[i:], `\!`) {
				all = append(all, []string{`\!`})
			}
			i += j
		case wordByte(ch):
			j := i
			for j < len(t) && wordByte(t[j]) {
				j++
			}
			cur = append(cur, strings.ToUpper(t[i:j]))
			i = j
		default:
			if ch > ' ' {
				cur = append(cur, string(ch))
			}
			i++
		}
	}
	if len(cur) > 0 {
		all = append(all, cur)
	}
	return all
}

func wordByte(ch byte) bool {
	return ch == '_' || ch == '.' || ch == '$' || ch == 0 || ch >= '0' && ch <= '9' || ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z' || ch >= 0x80
}

// judgeSQL gives the rule that a statement breaks, "" when none.
func judgeSQL(w []string) string {
	for len(w) > 1 && (w[0] == "EXPLAIN" || w[0] == "BEGIN") {
		if w[0] == "EXPLAIN" && w[1] != "ANALYZE" {
			return ""
		}
		w = w[1:]
		if w[0] == "ANALYZE" || w[0] == "TRANSACTION" || w[0] == "WORK" {
			w = w[1:]
		}
	}
	if len(w) == 0 {
		return ""
	}
	has := func(x string) bool {
		for _, t := range w {
			if t == x {
				return true
			}
		}
		return false
	}
	switch w[0] {
	case "DROP":
		if len(w) > 1 && (w[1] == "INDEX" || w[1] == "TEMPORARY" || w[1] == "VIEW") {
			return ""
		}
		return "db.drop"
	case "TRUNCATE":
		return "db.drop"
	case "ALTER":
		if has("DROP") {
			return "db.drop"
		}
		if len(w) > 1 && (w[1] == "USER" || w[1] == "ROLE") {
			return "db.grant"
		}
	case "DELETE", "UPDATE":
		return whereless(w)
	case "WITH":
		if has("DELETE") || has("UPDATE") {
			return whereless(w)
		}
	case "GRANT", "REVOKE":
		return "db.grant"
	case "CREATE":
		if len(w) > 1 && (w[1] == "USER" || w[1] == "ROLE") {
			return "db.grant"
		}
	case "COPY":
		if has("PROGRAM") {
			return "db.shell"
		}
	case `\!`, "SYSTEM":
		return "db.shell"
	case "SELECT":
		if has("OUTFILE") || has("DUMPFILE") || has("LOAD_FILE") || has("PG_READ_FILE") || has("LO_EXPORT") || has("SYS_EXEC") || has("LOAD_EXTENSION") {
			return "db.shell"
		}
	case "FLUSHALL", "FLUSHDB":
		return "db.drop"
	}
	if w[0] == "EXEC" && has("XP_CMDSHELL") {
		return "db.shell"
	}
	return ""
}

// whereless says whether a DELETE or UPDATE changes all rows: without WHERE, or
// with one that compares constants.
func whereless(w []string) string {
	for i, t := range w {
		if t != "WHERE" {
			continue
		}
		rest := w[i+1:]
		if len(rest) >= 3 && rest[1] == "=" && rest[0] == rest[2] || len(rest) == 1 {
			return "db.delete-all"
		}
		for j := range rest {
			if rest[j] == "OR" && j+3 < len(rest) && rest[j+2] == "=" && rest[j+1] == rest[j+3] {
				return "db.delete-all"
			}
		}
		return ""
	}
	for _, t := range w {
		if t == "LIMIT" {
			return ""
		}
	}
	return "db.delete-all"
}
