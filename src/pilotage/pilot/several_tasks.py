"""Runs a command as several tasks of one step, as srun does: `python -c SOURCE COUNT COMMAND...` on the node.

Its own text is the program, so it imports nothing of the pilot, which the step does not see.
"""

SOURCE = """\
import os, signal, socket, sys

count, command = int(sys.argv[1]), sys.argv[2:]
host = socket.gethostname().partition(".")[0]
signals = [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2]
tasks = []


def say(text):
    os.write(2, os.fsencode(text + "\\n"))


def start(number):
    task = os.fork()
    if task:
        return task
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.environ.update(SLURM_PROCID=str(number), SLURM_LOCALID=str(number), SLURM_TASK_PID=str(os.getpid()))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        say(f"slurmstepd-{host}: error: execve(): {command[0]}: {error.strerror}")
        os._exit(error.errno)


def pass_on(number, frame):
    for task in tasks:
        try:
            os.killpg(task, number)
        except OSError:
            pass


os.environ.update(SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS=str(count))
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
tasks += map(start, range(count))
for number in signals:
    signal.signal(number, pass_on)
signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
highest = 0
for number, task in enumerate(list(tasks)):
    status = os.waitpid(task, 0)[1]
    tasks.remove(task)
    if os.WIFSIGNALED(status):
        code, said = 128 + os.WTERMSIG(status), signal.strsignal(os.WTERMSIG(status))
    else:
        code = os.WEXITSTATUS(status)
        said = f"Exited with exit code {code}"
    if code:
        say(f"srun: error: {host}: task {number}: {said}")
    highest = max(highest, code)
sys.exit(highest)
"""
