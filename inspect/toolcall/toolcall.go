// Package toolcall holds the one value that crosses from the wire formats to
// the gate: a tool call as the agent would read it, and what that call does.
// It knows no wire format and no policy.
package toolcall

import "strconv"

// Fault says why a call cannot be judged as it stands. A call with any fault
// other than FaultNone must never be released.
type Fault uint8

// The faults a dialect can find while it reads an answer.
const (
	FaultNone      Fault = iota
	FaultArguments       // the arguments are not one strict JSON value of the kind the wire asks for
	FaultTruncated       // the answer ended, or was cut by its token limit, inside the call
	FaultAmbiguous       // two readers could read it differently: duplicate keys, copies that differ, a reused index
	FaultUnknown         // an item of a type this dialect has no reading for
	FaultOversize        // larger than a limit allows
)

var faultNames = [...]string{"none", "arguments", "truncated", "ambiguous", "unknown", "oversize"}

// String gives the fault's word as it appears in the audit log.
func (f Fault) String() string {
	if int(f) < len(faultNames) {
		return faultNames[f]
	}
	return "fault" + strconv.Itoa(int(f))
}

// Call is one tool call of a turn.
type Call struct {
	// Seq is the call's position in the turn, from 0, in the provider's order.
	// It is the only address of a call: ids repeat or are missing.
	Seq int
	// Lane is the choice or candidate that holds the call, 0 for all but n>1.
	Lane int
	// ID is the provider's id, as the wire gave it; it may be empty.
	ID string
	// Type is the wire's word for the item: function, custom, tool_use ...
	Type string
	// Name is the tool's name.
	Name string
	// Args are the raw arguments as the client will read them: JSON, or free
	// text when Text is set.
	Args []byte
	// Text says that Args is free text and not JSON.
	Text bool
	// Fault is set when the call cannot be judged; Detail says where and why.
	Fault  Fault
	Detail string
}

// Tool is a tool that a request offers to the model.
type Tool struct {
	Name string
	// Type is the wire's word: function, custom, bash_20250124 ...
	Type string
	// Schema is the raw JSON Schema of the arguments, nil when there is none.
	Schema []byte
	// Hosted says that the provider runs the tool itself.
	Hosted bool
}

// Kind is what sort of thing an action does.
type Kind uint8

// The kinds of action. The zero value is the one nothing is known about.
const (
	KindTool        Kind = iota // some tool; only its name and arguments are known
	KindCommand                 // runs a command or a script
	KindFile                    // reads or changes a file
	KindPermissions             // asks for more rights for the agent
)

var kindNames = [...]string{"tool", "command", "file", "permissions"}

// String gives the kind's word, as rules, hooks and the audit log use it.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "kind" + strconv.Itoa(int(k))
}

// Op is what a file action does to its file.
type Op uint8

// The file operations. The zero value is the most careful reading.
const (
	OpWrite Op = iota // creates, replaces or edits
	OpRead
	OpDelete
)

var opNames = [...]string{"write", "read", "delete"}

// String gives the operation's word.
func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return "op" + strconv.Itoa(int(o))
}

// The languages a command can be written in, for Action.Language.
const (
	LangShell      = "shell" // POSIX shells and bash, the default of a command tool
	LangPowerShell = "powershell"
	LangCmd        = "cmd" // Windows cmd.exe
	LangPython     = "python"
	LangJavaScript = "javascript"
	LangSQL        = "sql"
	// LangUnknown says that nothing tells the language, or that the text could
	// not be taken out of the arguments and Command holds them as they came.
	// Nobody can read such a command, so somebody is to be asked.
	LangUnknown = "unknown"
)

// Action is one thing a call does. A call has one or several: a wrapper such as
// a list of commands holds one action each.
type Action struct {
	Kind Kind
	// Tool is the name of the tool that does it, after wrappers are looked
	// through.
	Tool string
	// Known says that the catalogue or the tool's declared schema told the
	// kind; it is false where only the name and arguments are known.
	Known bool
	// Command is the command line or script text, for KindCommand, and
	// Language the language it is written in (Lang constants).
	Command  string
	Language string
	// Dir is the working directory the call names, "" when it names none.
	Dir string
	// Path, Op and Content belong to KindFile. Content is what is written, nil
	// when the call does not hold it.
	Path    string
	Op      Op
	Content []byte
}
