"""Add up the numbers of the job's input files, and write the sum into sum.txt. It takes a second, as a job does."""

import os
import time

total = 0
for path in os.environ["PILOTAGE_FILES"].split():
    with open(path) as file:
        total += sum(map(int, file))
time.sleep(1)
with open("sum.txt", "w") as file:
    file.write(f"{total}\n")
