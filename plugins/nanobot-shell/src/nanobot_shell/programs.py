"""What is known of programs by name: which start others, and how code is handed to them.

Knowledge in tables, after collections of programs that break out of restricted shells. Where a
program is missing here, its arguments count as plain data.
"""

from __future__ import annotations

import re

SHELLS = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash", "csh", "tcsh"}
)
WRAPPERS = frozenset(
    {
        *("sudo", "doas", "su", "env", "command", "builtin", "exec", "nohup", "nice", "ionice"),
        *("time", "timeout", "stdbuf", "setsid", "chroot", "xargs", "busybox", "toybox", "watch"),
        *("unshare", "nsenter", "parallel", "flock", "strace", "script", "coproc", "chrt", "then"),
        *("runuser", "pkexec", "systemd-run", "caffeinate", "rlwrap", "unbuffer", "taskset", "!"),
        *("ltrace", "valgrind", "setarch", "linux32", "linux64", "i386", "prlimit", "setpriv"),
        *(
            "numactl",
            "fakeroot",
            "faketime",
            "eatmydata",
            "proxychains",
            "proxychains4",
            "torsocks",
        ),
        *("torify", "xvfb-run", "dbus-run-session", "dbus-launch", "ssh-agent", "sshpass"),
        *(
            "capsh",
            "firejail",
            "systemd-inhibit",
            "cgexec",
            "cpulimit",
            "choom",
            "daemonize",
            "daemon",
        ),
        *(
            "start-stop-daemon",
            "sg",
            "screen",
            "tmux",
            "entr",
            "hyperfine",
            "multitime",
            "catchsegv",
        ),
        *(
            "uv",
            "uvx",
            "poetry",
            "pipenv",
            "pipx",
            "bundle",
            "npm",
            "npx",
            "pnpm",
            "yarn",
            "direnv",
        ),
        *("nix-shell", "kubectl", "cmake", "winpty", "aa-exec", "expect", "ld.so", "tini"),
    }
)
"""Programs that start the command which their arguments hold."""
OPERAND_FIRST = frozenset(
    {
        *("flock", "chroot", "taskset", "su", "runuser", "script", "chrt", "coproc", "setarch"),
        *("sshpass", "sg", "screen", "tmux", "faketime", "cgexec", "start-stop-daemon", "ld.so"),
        *("uv", "poetry", "pipenv", "pipx", "bundle", "npm", "pnpm", "yarn", "direnv", "cmake"),
        *("kubectl", "nix-shell", "capsh", "aa-exec", "cpulimit", "choom", "daemon"),
    }
)
"""Wrappers with operands of their own before the command."""
LINE_TAKERS = frozenset(
    {
        *("su", "runuser", "script", "env", "watch", "parallel", "flock", "sg", "capsh", "tmux"),
        *("screen", "hyperfine", "npx", "npm", "pnpm", "yarn", "nix-shell", "entr", "strace"),
        *("start-stop-daemon", "expect"),
    }
)
"""Programs that may take a whole command line as one argument."""
LOADER = re.compile(r"ld-(linux|musl)\b.*\.so(\.\d+)?$")
"""The dynamic loader, which runs the program that it is given."""

INLINE_CODE = {
    "python": "c",
    "pypy": "c",
    "ipython": "c",
    "perl": "eE",
    "raku": "e",
    "ruby": "e",
    "irb": "e",
    "pry": "e",
    "node": "ep",
    "nodejs": "ep",
    "bun": "ep",
    "ts-node": "ep",
    "tsx": "ep",
    "php": "rRBEF",
    "lua": "e",
    "luajit": "e",
    "texlua": "e",
    "pwsh": "cCeE",
    "osascript": "e",
    "tclsh": "",
    "wish": "",
    "expect": "c",
    "Rscript": "e",
    "julia": "eE",
    "octave": "",
    "gnuplot": "e",
    "guile": "c",
    "sbcl": "",
    "clisp": "x",
    "racket": "e",
    "elixir": "e",
    "iex": "e",
    "groovy": "e",
    "jrunscript": "e",
    "jshell": "",
    "ocaml": "e",
    "scala": "e",
    "gdb": "x",
    "lldb": "osOS",
    "deno": "",
}
"""Interpreters by name without version, and the letters of options that take code."""
CODE_OPTIONS = frozenset(
    {"--eval", "--print", "--execute", "--code", "--eval-command", "--load", "-Command", "-"}
)
OPTIONS_WITH_VALUE = {"python": "WX", "node": "r", "php": "dcz", "ruby": "rIC", "perl": "I"}
"""Options of interpreters whose value is the next word, and no program."""
CODE_MODULES = frozenset(
    {"timeit", "cProfile", "profile", "pdb", "trace", "code", "runpy", "IPython", "idlelib"}
)
"""Modules that run code given to them, after ``python -m``."""

ALWAYS_CODE = frozenset(
    {"at", "batch", "crontab", "logrotate", "run-parts", "ed", "dc", "m4", "telnet", "ftp", "fc"}
)
"""Programs that read commands from their input or their files and do nothing else."""
READS_COMMANDS = frozenset({"sqlite3", "psql", "mysql", "mariadb", "gdb", "lldb", "bc", "ninja"})
"""Programs that take commands from what is written into the line as their input."""

_REMOTE = r"-S|-o|-F|-D|.*(ProxyCommand|LocalCommand|KnownHostsCommand)"
_EDITOR = re.compile(r"!|system|shell|eval")
_SED = r"(^|[;\d$/{])\s*e(\s|$)|/[gipmIM\d]*e[gipmIM\d]*;?$|(^|[;\d$/{])\s*[rRwW]\s+\S"
_LATEX = re.compile(r"-{1,2}shell-escape|\\write18")
CODE_WORDS = {
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), re.compile(r"system|\||getline|load")),
    **dict.fromkeys(("sed", "gsed"), re.compile(_SED)),
    **dict.fromkeys(("vim", "vi", "ex", "emacs", "nvim", "view", "vimdiff", "rvim"), _EDITOR),
    **dict.fromkeys(("less", "more", "most"), re.compile(r"^\+.*!")),
    **dict.fromkeys(("ssh", "scp", "sftp", "ssh-keygen"), re.compile(rf"^({_REMOTE})")),
    **dict.fromkeys(("nc", "ncat", "netcat"), re.compile(r"^-\w*[ec]|^--(sh-|lua-)?exec")),
    **dict.fromkeys(("gcc", "g++", "cc", "c++", "clang"), re.compile(r"^-(wrapper|specs|fplugin)")),
    **dict.fromkeys(("docker", "podman", "nerdctl"), re.compile(r"^(run|exec|create|build)$")),
    **dict.fromkeys(("pdflatex", "latex", "xelatex", "lualatex", "tex", "pdftex"), _LATEX),
    **dict.fromkeys(("apt", "apt-get", "dpkg"), re.compile(r"invoke", re.IGNORECASE)),
    **dict.fromkeys(("complete", "compgen", "mapfile", "readarray"), re.compile(r"^-\w*C")),
    **dict.fromkeys(("psql", "mysql", "mariadb"), re.compile(r"\\!|\bsystem\b|\\\|")),
    "R": re.compile(r"^-e|^--(file|args)"),
    "bind": re.compile(r"^-\w*x"),
    "busctl": re.compile(r"unixexec"),
    "cpio": re.compile(r"^--rsh-command"),
    "deno": re.compile(r"^(eval|repl)$"),
    "erl": re.compile(r"^-(eval|run|s)$"),
    "facter": re.compile(r"^--(custom|external)-dir"),
    "fzf": re.compile(r"^--(preview|bind|listen)"),
    "ghc": re.compile(r"^-e"),
    "go": re.compile(r"^(run|generate)$|^-(toolexec|exec)"),
    "history": re.compile(r"^-\w*[srn]"),
    "make": re.compile(r"^--eval|^-E|^-\w*f$|\$\(shell|!="),
    "man": re.compile(r"^-[PH]|^--(pager|html)"),
    "ninja": re.compile(r"^-\w*f"),
    "nmap": re.compile(r"^--script|^--interactive"),
    "openssl": re.compile(r"^-(engine|provider)"),
    "openvpn": re.compile(r"^--(up|down|script|route-up|plugin|tls-verify|config)"),
    "rpm": re.compile(r"^(--eval|--pipe|-E)|%\("),
    "rsync": re.compile(r"^-\w*e|^--(rsh|rsync-path)"),
    "socat": re.compile(r"^(exec|system|shell):", re.IGNORECASE),
    "sort": re.compile(r"^--compress-program"),
    "split": re.compile(r"^--filter"),
    "sqlite3": re.compile(r"\.(shell|system|load|import|read|once|output)|load_extension|edit\("),
    "strace": re.compile(r"^\|"),
    "sudo": re.compile(r"^(-[a-zA-Z]*[sie]|--shell|--login|--edit)$"),
    "tar": re.compile(
        r"^--(checkpoint-action|to-command|use-compress-program|rsh-command|info-script"
        r"|new-volume-script)|^-\w*[IF]"
    ),
    "tcpdump": re.compile(r"^-z|^--postrotate"),
    "wget": re.compile(r"^--use-askpass"),
    "zip": re.compile(r"^-TT|^--unzip-command"),
}
"""Programs that run code found in an argument, and what such an argument looks like."""

CODE_VARIABLES = re.compile(
    r"(?:^|\s)(LD_PRELOAD|LD_LIBRARY_PATH|LD_AUDIT|DYLD_\w+|BASH_ENV|ENV|PS[0-4]|PROMPT_COMMAND"
    r"|CDPATH|BASH_FUNC_\S+|SHELLOPTS|\w*PAGER|\w*EDITOR|VISUAL|BROWSER|LESSOPEN|LESSCLOSE"
    r"|GIT_(?:SSH|SSH_COMMAND|EXTERNAL_DIFF|ASKPASS|PROXY_COMMAND|CONFIG\w*|EXEC_PATH|DIR)"
    r"|SSH_ASKPASS|PERL5OPT|PERL5LIB|PERL5DB|RUBYOPT|NODE_OPTIONS|PYTHONSTARTUP|PYTHONPATH"
    r"|PYTHONHOME|JAVA_TOOL_OPTIONS|TAR_OPTIONS|RSYNC_RSH|MAKEFLAGS)\+?="
)
"""Variables from which programs take code, as they are set before or by a command."""

FOLLOWS_LINKS = {
    "grep": ("R", "--dereference-recursive"),
    "egrep": ("R", "--dereference-recursive"),
    "rg": ("L", "--follow"),
    "ag": ("f", "--follow"),
    "fd": ("L", "--follow"),
    "tar": ("h", "--dereference"),
    "cp": ("LH", "--dereference"),
    "rsync": ("LkK", "--copy-links"),
    "find": ("LH", "-follow"),
    "tree": ("l", "--follow"),
    "zip": ("r", "--recurse-paths"),
    "scp": ("r", "--recursive"),
    "diff": ("r", "--recursive"),
}
"""Programs with the options by which they go through every link that they meet."""

_GIT_KEYS = re.compile(
    r"(alias|core|pager|diff|difftool|mergetool|merge|filter|credential|sequence|gpg|man|browser"
    r"|remote|uploadpack|protocol|include|includeif|submodule|ssh|web|help|trailer|sendemail)\.\S",
    re.IGNORECASE,
)
_GIT_WORDS = re.compile(
    r"^--(upload-pack|receive-pack|exec|extcmd|open-files-in-pager|ext-diff|config-env|exec-path=)"
    r"|^ext::|^-O\S"
)
_GIT_SUBCOMMANDS = {
    "bisect": re.compile(r"^run$"),
    "submodule": re.compile(r"^foreach$"),
    "filter-branch": re.compile(r""),
    "rebase": re.compile(r"^-\w*x"),
    "difftool": re.compile(r"^-\w*x"),
    "clone": re.compile(r"^-\w*u|^-c$|^--config$"),
    "config": _GIT_KEYS,
}


def git_code(texts: list[str]) -> str:
    """Return the argument of git that holds a command, or an empty string."""
    name = next((text for text in texts if text in _GIT_SUBCOMMANDS), "")
    if "-c" in texts and (found := next(filter(_GIT_KEYS.match, texts), "")):
        return found
    if found := next(filter(_GIT_WORDS.search, texts), ""):
        return found
    pattern = _GIT_SUBCOMMANDS.get(name)
    # Words before the subcommand are git's own.
    behind = texts[texts.index(name) + 1 :] if pattern else []
    return next(filter(pattern.search, behind), "") if pattern else ""
