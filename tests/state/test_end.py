"""A state in a child that is forked."""

import os
import signal

import twinlink
from twinlink.testing import free_endpoint


def test_a_child_forked_while_a_thread_holds_a_states_locks_is_told_so() -> None:
    with twinlink.open("memory", listen=free_endpoint()) as link:
        state = link.state("cells")
        with state._lock, link._states_lock:
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(10)
                refused = 0
                for use in (lambda: state.desire("cell-1", b"1"), lambda: link.state("cells"), lambda: link.state("x")):
                    try:
                        use()
                    except twinlink.LinkClosed as error:
                        refused += "forked" in str(error)
                os._exit(refused if len(state.items()) == 0 else 99)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
